import pickle

import pytest

from odekit.errors import InputError, OdekitError, SolveError, unknown_name


def test_bad_input_is_a_value_error():
    with pytest.raises(ValueError, match="below zero"):
        raise InputError("N is below zero")
    assert issubclass(InputError, OdekitError)


def test_solve_error_keeps_its_solution_across_processes():
    error = pickle.loads(pickle.dumps(SolveError("blow-up near t = 1", {"t": [0, 1]})))
    assert isinstance(error, SolveError)
    assert str(error) == "blow-up near t = 1"
    assert error.solution == {"t": [0, 1]}


def test_unknown_name_suggests_the_nearest_and_lists_the_rest():
    message = str(unknown_name("state", "Kk", ["K", "Q", "v"]))
    assert "Did you mean 'K'?" in message
    assert message.endswith("Known: K, Q, v.")
    assert "Did you mean" not in str(unknown_name("state", "zzz", ["K"]))
