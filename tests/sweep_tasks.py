"""Tasks of sweeps that worker processes import by name, as a user's own would be."""

from __future__ import annotations

import os

import numpy as np

from odekit.errors import SolveError
from odekit.solution.status import Status

FLAG = "ODEKIT_TEST_SWEEP_DIES"


def sums(a, b, shift=0):
    return {"sum": a + b + shift, "row": np.arange(3.0) * a, "name": f"{a}-{b}"}


def deadly(a):
    if a == 3 and FLAG in os.environ:
        os._exit(9)
    return {"square": a * a}


class Stopped:
    """What a run holds that Ctrl-C ended."""

    status = Status.interrupted


def interrupted(a):
    if a == 2 and FLAG in os.environ:
        raise SolveError("Interrupted at t = 1.", Stopped())
    return {"square": a * a}
