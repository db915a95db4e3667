r"""Phase diagrams: how long plateaus last, and how many there are, over starts and problems.

Ten thousand solves in one sweep (docs/sweep.md), with a theory that sees none of them:

- merged keys and queries leave their one plateau exponentially, at the rate |L^2|_F;
- separate ones leave each plateau by an explosion, dv/dt = lambda^2 v^2, after 1/(lambda^2 v0);
- a head of rank R learns R eigenvectors in one go: ceil(D/R) plateaus are left from small starts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import NDArray
from scipy.special import lambertw

import odekit as ok
from odekit.claims import Check, identity
from odekit.reproduce import Picture

Array = NDArray[np.float64]

CONTEXT, HEADS, SLOPE = 31, 4, 0.1
SPECTRUM = (0.4, 0.3, 0.2, 0.1)  # of the count over ranks
LASTING = 1.2  # a plateau that is counted ends at least so many times later than it starts
TOLERANCE = ok.Tolerance(relative=1e-8)


@functools.cache
def compiled(kind: str, dim: int, rank: int) -> tuple[Any, Any]:
    """The model and its compiled flow, once a process."""
    sizes: dict[str, Any] = {"heads": HEADS, "dim": dim, "context": CONTEXT}
    if kind == "separate":
        model: Any = ok.models.attention_separate(**sizes, rank=rank)
    else:
        model = ok.models.attention_merged(**sizes)
    return model, ok.compile(model.flow)


def plateaus(
    kind: str, spectrum: Sequence[float], rank: int, scale: float, seeds: int, lasting: float = 1.0
) -> list[Any]:
    """The plateaus of one layer from so many random starts, an ensemble."""
    model, flow = compiled(kind, len(spectrum), rank)
    starts = [ok.simulate.initial(model, scale, seed) for seed in range(seeds)]
    end = 1e3 / min(spectrum) ** 2 / (scale if kind == "separate" else 1.0)
    runs: Any = ok.ensemble(
        flow, starts, end, {"Lambda": np.diag(spectrum), "N": CONTEXT}, method="Rodas5P",
        tolerance=TOLERANCE, save=ok.Save(dense=False, points=10**6), throw=True, workers=1,
    )  # fmt: skip
    return [ok.sweep.read_plateaus(run.t, run.loss, SLOPE, lasting) for run in runs]


def duration(kind: str, scale: float, gap: float, seeds: int) -> dict[str, Array]:
    """How long a layer of two eigenvalues waits: merged at first, separate between its drops."""
    found = plateaus(kind, _pair(gap), 1, scale, seeds)
    first = 0 if kind == "merged" else 1
    # The last one is the rest. It is no plateau that was left.
    waits = [p.duration[first] if p.left[first : first + 1].any() else 0.0 for p in found]
    return {"duration": np.array(waits)}


def number(rank: int, scale: float, seeds: int) -> dict[str, Array]:
    """How many plateaus are left on the way through four eigenvectors."""
    found = plateaus("separate", SPECTRUM, rank, scale, seeds, LASTING)
    return {"number": np.array([int(p.left.sum()) for p in found])}


def _pair(gap: float) -> tuple[float, float]:
    return 0.5 + gap / 2, 0.5 - gap / 2


# -- statements ------------------------------------------------------------------------------------


def merged_duration(start: dict[str, Array], spectrum: Sequence[float]) -> float:
    r"""End of the merged plateau: ``|d ln(loss)/d ln(t)|`` of the linear flow reaches SLOPE.

    Near zero ``v_h' = <U_h, L^2>`` and ``U_h' = v_h L^2``: the growing part of a head is ``m_h =
    (v_h + <U_h, L^2>/g)/2`` with ``g = |L^2|_F``, and the loss is ``tr L - 2 g w^2 exp(2 g t)``
    with ``w^2 = sum_h m_h^2``; the slope is reached when ``2 g t exp(2 g t)`` is so large.
    """
    square = np.diag(np.square(spectrum))
    rate = float(np.linalg.norm(square))
    growing = (start["v"] + np.einsum("hij,ij->h", start["U"], square) / rate) / 2
    weight = float(growing @ growing)
    return float(lambertw(SLOPE * sum(spectrum) / (2 * rate * weight)).real) / (2 * rate)


def separate_duration(scale: float, spectrum: Sequence[float]) -> float:
    """Time between the explosions of two heads that start alike, aligned, at this scale."""
    first, second = spectrum
    return (second**-2 - first**-2) / scale


def rates() -> tuple[Check, ...]:
    """What the two formulas solve."""
    t, v0, lam, g, v, u, w = sp.symbols("t v0 lambda g v u w", positive=True)
    explosion = v0 / (1 - lam**2 * v0 * t)
    falls = -sp.diff(-2 * g * w**2 * sp.exp(2 * g * t), t)
    return (
        identity("v' = lambda^2 v^2", explosion.diff(t), lam**2 * explosion**2),
        identity("it explodes at 1/(lambda^2 v0)", (1 / explosion).subs(t, 1 / (lam**2 * v0)), 0),
        # With v' = u and u' = g^2 v, where u = <U, L^2>.
        identity("v + u/g grows at the rate g", u + g**2 * v / g, g * (v + u / g)),
        identity("-t d(loss)/dt", t * falls, 2 * g * w**2 * (2 * g * t * sp.exp(2 * g * t))),
    )


def limits() -> tuple[Check, ...]:
    """From small starts the solves approach both formulas, and the count over ranks."""
    spectrum = _pair(0.4)
    checks = []
    for scale in (1e-2, 1e-3):
        model, _ = compiled("merged", 2, 1)
        theory = merged_duration(ok.simulate.initial(model, scale, 0), spectrum)
        seen = plateaus("merged", spectrum, 1, scale, 1)[0].end[0]
        # At its end the loss has fallen by SLOPE/(2 g t) of itself: so much is not linear.
        bound = SLOPE / (2 * float(np.linalg.norm(np.square(spectrum))) * theory)
        checks.append(Check(f"merged, from {scale:g}", abs(seen / theory - 1), bound))
    _, flow = compiled("separate", 2, 1)
    for scale in (1e-2, 1e-4):
        start = {"v": np.zeros(HEADS), "K": np.zeros((HEADS, 1, 2)), "Q": np.zeros((HEADS, 1, 2))}
        for head in range(2):
            start["v"][head] = start["K"][head, 0, head] = start["Q"][head, 0, head] = scale
        run: Any = ok.solve(
            flow, start, 40 / scale, {"Lambda": np.diag(spectrum), "N": CONTEXT},
            tolerance=TOLERANCE, method="Rodas5P",
        )  # fmt: skip
        seen = ok.sweep.read_plateaus(run.t, run.loss, SLOPE).duration[1]
        theory = separate_duration(scale, spectrum)
        # The plateau is left at v of order (SLOPE v0)^(1/4), not at infinity: so much too early.
        checks.append(
            Check(f"separate, alike, from {scale:g}", abs(seen / theory - 1), 5 * scale**0.75)
        )
    for rank in (1, 2, 4):
        counts = number(rank, 1e-3, 3)["number"]
        gap = float(np.abs(np.median(counts) - np.ceil(len(SPECTRUM) / rank)))
        checks.append(Check(f"rank {rank}: ceil(D/R) plateaus", gap, 0.5, "a whole number"))
    return tuple(checks)


def derive() -> tuple[Check, ...]:
    """All checks."""
    return (*rates(), *limits())


# -- figure ----------------------------------------------------------------------------------------

GRIDS = {  # scales, gaps or ranks, seeds; together 10,200 solves
    False: {"merged": (25, 24, 5), "separate": (25, 24, 10), "number": (25, 4, 12)},
    True: {"merged": (7, 6, 2), "separate": (7, 6, 3), "number": (6, 4, 3)},
}
SCALES, GAPS = (1e-3, 0.3), (0.02, 0.8)


def sweeps(quick: bool) -> dict[str, Any]:
    """The three sweeps: name -> plan."""
    grids = GRIDS[quick]
    made = {}
    for kind in ("merged", "separate"):
        scales, gaps, seeds = grids[kind]
        axes: dict[str, Any] = {
            "scale": np.geomspace(*SCALES, scales),
            "gap": np.linspace(*GAPS, gaps),
        }
        shared = {"kind": kind, "seeds": seeds}
        made[kind] = ok.sweep.grid(duration, axes, title=kind, arguments=shared)
    scales, ranks, seeds = grids["number"]
    axes = {"rank": np.arange(1, ranks + 1), "scale": np.geomspace(*SCALES, scales)}
    made["number"] = ok.sweep.grid(number, axes, title="number", arguments={"seeds": seeds})
    return made


def _teller(name: str, progress: Callable[[str], None]) -> Callable[[ok.sweep.Progress], None]:
    """Tell how far a sweep is, every five seconds."""
    told = 0.0

    def tell(state: ok.sweep.Progress) -> None:
        nonlocal told
        if state.elapsed - told >= 5:
            told = state.elapsed
            progress(f"{name}: {state}")

    return tell


def draw(quick: bool, progress: Callable[[str], None]) -> Picture:
    """Run the sweeps, or what is missing of them, and draw their maps."""
    results = {}
    for name, plan in sweeps(quick).items():
        store = ok.sweep.kept(f"examples-phase-diagram-{name}{'-quick' if quick else ''}")
        progress(f"{name}: {len(plan)} points")
        results[name] = ok.sweep.run(
            plan, store, resume=True, retry=True, progress=_teller(name, progress)
        )
        if results[name].failures:
            raise ok.OdekitError(next(iter(results[name].failures.values())))
    progress("draws")
    from .phase_maps import picture

    return picture(results)
