"""Makes the derivations importable from the source tree, under their installed name."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

if importlib.util.find_spec("odekit_derivations") is None:
    # setup.py maps derivations/ to odekit_derivations; without an installation nobody has.
    package = ModuleType("odekit_derivations")
    package.__path__ = [str(Path(__file__).parents[2] / "derivations")]
    sys.modules["odekit_derivations"] = package
