import json
import os
import warnings

import pytest

from odekit.errors import InputError, OdekitWarning
from odekit.reproduce import discover, run


@pytest.fixture
def known(doe2030):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OdekitWarning)  # the broken neighbour; see test_targets.py
        return discover()


def test_one_worker_draws_in_this_process(known, tmp_path):
    heard = []
    (outcome,) = run(
        [known["doe2030/good"]],
        tmp_path / "out",
        quick=True,
        workers=1,
        listener=lambda *message: heard.append(message),
    )
    assert outcome.error is None
    record = json.loads((tmp_path / "out/doe2030/good.json").read_text())
    assert record["process"] == os.getpid()
    assert record["quick"] is True
    assert [message for _, message in heard] == ["starts", "integrates", "writes", "done"]


def test_a_failed_target_does_not_lose_the_others(known, tmp_path):
    names = ["doe2030/raises", "doe2030/good", "doe2030/answers", "doe2030/also-good"]
    heard = []
    outcomes = run(
        [known[name] for name in names],
        tmp_path,
        workers=2,
        listener=lambda *message: heard.append(message),
    )
    assert [outcome.target.name for outcome in outcomes] == names
    assert outcomes[0].error == "ArithmeticError: no such limit"
    assert "Traceback" in outcomes[0].files[0].read_text()
    assert "must return a Picture, got int" in outcomes[2].error
    for outcome in (outcomes[1], outcomes[3]):
        assert outcome.error is None
        assert json.loads(outcome.files[2].read_text())["process"] != os.getpid()
    assert ("doe2030/good", "done") in heard
    assert ("doe2030/raises", "failed") in heard


def test_a_target_whose_process_dies_does_not_lose_the_others(known, tmp_path):
    names = ["doe2030/good", "doe2030/dies", "doe2030/also-good"]
    outcomes = run([known[name] for name in names], tmp_path, workers=2)
    assert outcomes[0].error is None
    assert "process died" in outcomes[1].error
    assert outcomes[2].error is None


def test_files_of_an_earlier_run_do_not_pass_for_a_failed_ones(known, tmp_path):
    stale = tmp_path / "doe2030" / "raises.json"
    stale.parent.mkdir()
    stale.write_text("{}")
    run([known["doe2030/raises"]], tmp_path)
    assert not stale.exists()


def test_workers_are_counted_from_one(known, tmp_path):
    with pytest.raises(InputError, match="workers"):
        run([known["doe2030/good"]], tmp_path, workers=0)
