"""Which method a run takes when the user does not say, and why."""

from __future__ import annotations

from odekit.integrate.methods import METHODS
from odekit.integrate.options import Tolerance, initial_scale
from odekit.integrate.task import Method, Task

__all__ = ["choose"]

TINY = 1e-4
"""Below this initial scale an L-stable method is the cheapest: explicit steps creep along the
learned modes' stability limit for a time of one over the scale, stabilised ones for about its
square root (PERFORMANCE: 57 L-stable steps a decade)."""

LARGEST_DENSE = 200
"""States up to here afford a dense factorisation a step."""

TIGHT, TIGHT_LARGE, LARGE = 3e-9, 1e-7, 1000
"""Relative tolerance below which order eight is cheaper than order five where accuracy limits the
step (`python -m benchmarks.bench_solve`: separate at D = 4 and 8; the merged drop sits between);
and that of large states, where calls cost more than the steps around them (separate, D = 32)."""

LARGEST_BLOCK = 8
FEWEST_BLOCKS = 4


def choose(task: Task, tolerance: Tolerance) -> tuple[Method, str]:
    """Choose a method by the structure of the field and the initial scale.

    Stiffness that appears on the way is the chosen method's own matter: "Tsit5-ROCK4" and
    "DOP853-ROCK4" change between their two by what limits the step, "Tsit5-Rodas5P" goes over once.

    Parameters
    ----------
    task : Task
        Its own tolerances are not used: they depend on the method.
    tolerance : Tolerance

    Returns
    -------
    (Method, str)
        The method, and the reason, which goes to ``stats["reason"]``.
    """
    compiled, n = task.compiled, len(task.y0)
    exact = compiled.has_jacobian
    blocks = _components(task) if exact and compiled.autonomous and task.watcher is None else None
    if blocks is not None and not (task.outputs is not None and task.dense):
        count, largest = blocks
        if count >= FEWEST_BLOCKS and largest <= LARGEST_BLOCK:
            return METHODS["Rodas5P-blocks"], (
                f"the Jacobian falls into {count} components of at most {largest} unknowns, each "
                "integrated with its own steps"
            )
    scale = initial_scale(compiled.layout, task.y0)
    if scale < TINY and exact and n <= LARGEST_DENSE:
        return METHODS["Rodas5P"], (
            f"initial scale {scale:.2g} is below {TINY:g}: the plateaus are long against the "
            "learned modes' own times, and the Jacobian is known"
        )
    if compiled.symmetric:
        plain = METHODS["Tsit5-ROCK4"]
        relative = tolerance.relative_for(compiled.layout, task.y0, plain.relative)
        if relative < (TIGHT if n < LARGE else TIGHT_LARGE):
            return METHODS["DOP853-ROCK4"], (
                "the Jacobian is symmetric: a stabilised method takes over where stability limits "
                f"DOP853, the cheaper plain method at a relative tolerance of {relative:.1g}"
            )
        return plain, (
            "the Jacobian is symmetric: a stabilised method takes over where stability limits Tsit5"
        )
    if exact and n <= LARGEST_DENSE:
        return METHODS["Tsit5-Rodas5P"], (
            "no structure is known: Tsit5 until stability limits its steps, then Rodas5P"
        )
    return METHODS["LSODA"], (
        "no structure is known, and the state is too large for a dense factorisation a step, or "
        "no Jacobian is known"
    )


def _components(task: Task) -> tuple[int, int] | None:
    """Count the connected components of the Jacobian's pattern, and the largest one's size."""
    if task.compiled.pattern is None:
        return None
    from odekit.integrate.compiled.components import classes_of

    shapes = [block.members.shape for block in classes_of(task.compiled)]
    return sum(count for _, count in shapes), max(size for size, _ in shapes)
