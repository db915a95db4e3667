"""`import odekit` stays light, and what it promises is there."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import odekit as ok

HEAVY = ("numba", "scipy", "matplotlib", "hypothesis", "pandas")


def loaded_after(statement: str) -> set[str]:
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}


@pytest.mark.parametrize(
    "statement", ["import odekit", "import odekit.cli", "import odekit.reproduce"]
)
def test_importing_loads_no_heavy_library(statement):
    assert loaded_after(statement).isdisjoint(HEAVY)


def test_help_loads_neither_sympy_nor_numpy():
    statement = "from odekit.cli import main\nmain(['--help'])"
    assert loaded_after(statement).isdisjoint({*HEAVY, "sympy", "numpy"})


@pytest.mark.parametrize("name", ok.__all__)
def test_every_public_name_is_there(name):
    assert getattr(ok, name) is not None
    assert name in dir(ok)


@pytest.mark.parametrize("first", ["", "import odekit.gaussian", "import odekit.gaussian.wick"])
def test_a_room_named_like_a_public_function_does_not_shadow_it(first):
    # Importing a subpackage binds its name in `odekit`, over whatever stood there.
    code = f"{first}\nimport odekit as ok\nN, D = ok.dims('N D')\nimport odekit.gaussian\n"
    code += "print(ok.gaussian('x', (N,), covariance=1).shape)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "(N,)\n", done.stderr


def test_rooms_do_not_share_names_with_other_public_names():
    rooms = {path.stem for path in Path(ok.__file__).parent.iterdir()} - {"gaussian"}
    assert rooms.isdisjoint(set(ok.__all__) - set(ok._SUBPACKAGES))


def test_a_wrong_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="solv"):
        _ = ok.solv
