"""The list of peers, and which problems each is no fair choice for."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.hand_written import SMALL, Problem
from benchmarks.peers import integrators, taylor, with_diffrax, with_sundae

Solve = Callable[[float, float], np.ndarray]

LARGEST_UNROLLED = 200
"""Unknowns that a peer without loops is compiled for in reasonable time."""


@dataclass(frozen=True)
class Peer:
    """`make(problem)` may compile; it returns `solve(rtol, atol) -> states (K, n)`.

    `kind` is "explicit", "dense" (implicit with a dense matrix) or "banded" (for the modes).
    """

    name: str
    package: str
    kind: str
    make: Callable[[Problem], Solve]
    unrolled: bool = False

    def unfit(self, p: Problem) -> str:
        """Why it is no fair choice for a problem; empty where it is one."""
        if self.kind == "explicit" and p.pattern is not None:
            return "explicit: stability asks for about a billion steps"
        tiny = SMALL.get(p.name, 1.0) < 1e-5
        if self.kind == "explicit" and tiny:
            return "explicit: steps grow as one over the initial scale"
        if self.name in {"CyRK BDF", "CyRK Radau", "diffrax Kvaerno5"} and tiny:
            return "takes tens of seconds a solve"
        if self.kind == "banded" and p.pattern is None:
            return "the Jacobian has no band"
        if self.kind == "dense" and p.y0.size > 500:
            return f"dense linear algebra on {p.y0.size} unknowns"
        if self.unrolled and p.y0.size > LARGEST_UNROLLED:
            return f"unrolls the equations: minutes to compile {p.y0.size} of them"
        return ""


PEERS: tuple[Peer, ...] = (
    Peer("numbalsoda dop853", "numbalsoda", "explicit", integrators.numbalsoda("dop853")),
    Peer("numbalsoda lsoda", "numbalsoda", "dense", integrators.numbalsoda("lsoda")),
    Peer("CyRK DOP853", "CyRK", "explicit", integrators.cyrk("DOP853")),
    Peer("CyRK LSODA", "CyRK", "dense", integrators.cyrk("LSODA")),
    Peer("CyRK BDF", "CyRK", "dense", integrators.cyrk("BDF")),
    Peer("CyRK Radau", "CyRK", "dense", integrators.cyrk("Radau")),
    Peer("pydiffsol tsit45", "pydiffsol", "explicit", integrators.pydiffsol("tsit45"), True),
    Peer("pydiffsol bdf", "pydiffsol", "dense", integrators.pydiffsol("bdf"), True),
    Peer("diffrax Dopri8", "diffrax", "explicit", with_diffrax.diffrax("Dopri8")),
    Peer("diffrax Kvaerno5", "diffrax", "dense", with_diffrax.diffrax("Kvaerno5")),
    Peer("heyoka", "heyoka", "explicit", taylor.heyoka, True),
    Peer("scikit-sundae Adams", "sksundae", "explicit", with_sundae.cvode("Adams")),
    Peer("scikit-sundae BDF", "sksundae", "dense", with_sundae.cvode("BDF")),
    Peer("scikit-sundae BDF, banded", "sksundae", "banded", with_sundae.cvode_banded),
    Peer("scipy DOP853", "scipy", "explicit", integrators.scipy("DOP853")),
    Peer("scipy LSODA", "scipy", "dense", integrators.scipy("LSODA")),
    Peer("scipy odeint", "scipy", "dense", integrators.odeint),
    Peer("scipy odeint, banded", "scipy", "banded", integrators.odeint_banded),
)

DISTRIBUTIONS = {"sksundae": "scikit-sundae"}


def missing() -> tuple[str, ...]:
    """Peers whose package cannot be imported, by the name they are installed under."""
    absent = []
    for package in dict.fromkeys(peer.package for peer in PEERS):
        try:
            importlib.import_module(package)
        except Exception:  # noqa: BLE001  a broken install is as missing as an absent one
            absent.append(DISTRIBUTIONS.get(package, package))
    return tuple(absent)
