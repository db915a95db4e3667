"""`sensitivities`: a run with its exact derivatives, by integrating the first variation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from odekit.codegen import CompiledField
from odekit.codegen import compile as compile_field
from odekit.errors import InputError, SolveError
from odekit.integrate.directions import Direction, read_directions, unit_of
from odekit.integrate.event_slopes import event_sensitivities, refuse_callables
from odekit.integrate.events import Crossing, Plateau, read_events
from odekit.integrate.methods import find_method
from odekit.integrate.options import Limits, Save, Tolerance
from odekit.integrate.outputs import read_times
from odekit.integrate.prepare import compiled_for, refuse_unknown
from odekit.integrate.solving import OPTIONS, origin_of, read_option, solve_quietly
from odekit.integrate.task import Task
from odekit.integrate.watch import make_watcher
from odekit.solution.interpolant import Interpolant
from odekit.solution.sensitivities import Sensitivities, split
from odekit.solution.solution import Solution

if TYPE_CHECKING:
    from odekit.field.tangent_field import TangentField

__all__ = ["sensitivities"]

Array = NDArray[np.float64]

SHARE = 0.01
"""Absolute tolerance of tangents over the relative one times their natural size."""

ROUGH = 1e-6
POINTS = 2000
"""The run that natural sizes are read from: its tolerance, and most points of it."""


def sensitivities(
    field: Any,
    y0: Mapping[str, Any],
    t: Any,
    params: Mapping[str, Any] | None = None,
    *,
    to: Any,
    sizes: Mapping[str, Any] | None = None,
    method: str = "auto",
    tolerance: Tolerance | None = None,
    save: Save | None = None,
    events: Any = (),
    limits: Limits | None = None,
    progress: Any = False,
    throw: bool = True,
    start: float = 0.0,
    **unknown: Any,
) -> Sensitivities:
    """Integrate a field together with its derivatives by parameters and by the initial state.

    Parameters
    ----------
    field : VectorField or CompiledField
        A compiled field must still have its vector field (``ok.compile`` keeps it).
    y0, t, params, sizes, save, events, limits, progress, throw, start
        As in `solve`. A crossing must watch the loss, a state's entry or an expression: a Python
        function has no exact derivative.
    to : str, Direction, or a sequence of them
        What to differentiate by, M directions in all:

        - a parameter or a state (of which the initial value is meant): all its entries, those
          tied by a declared symmetry together; ``"Lambda[0, 1]"`` is one entry;
        - ``"eigenvalues(Lambda)"``: each eigenvalue of a symmetric parameter, largest first, its
          eigenvector held fixed;
        - ``"log scale"``: the logarithm of the initial scale, ``y0 = scale * direction``;
        - an ``ok.Direction``, any other combination.
    method : str
        "auto" chooses as it would for the field alone.
    tolerance : Tolerance, optional
        As in `solve`; ``absolute`` is for the states. Tangents are under error control as states
        are, relative to themselves. Their absolute tolerance is a hundredth of the relative one
        times their natural size: that of the state, or of what it moves in the time run so far
        if that is more, over the natural unit of the direction (the change that moves something
        by its own size). It comes from a short run of the field alone.

    Returns
    -------
    Sensitivities
        ``sens["v"]`` is ``(K, M, *shape)``, ``sens.loss`` ``(K, M)``, ``sens.event_times``
        ``(events, M)``, ``sens.trajectory`` the run itself.

    Raises
    ------
    InputError
        As `solve`; for directions that are unknown or fixed; for events without a derivative.
    SolveError
        As `solve`.

    Notes
    -----
    The tangents obey ``d(dx)/dt = (df/dx) dx + (df/dp) dp``, whose right-hand side is derived
    symbolically and compiled as any other (`odekit.field.tangent_field`), so every method,
    dense output and events work as for the field itself. A call costs roughly that of the field
    times ``1 + 3 M``; methods with a dense Jacobian pay for a state of ``(1 + M) n`` entries.

    An event at ``g(t, x, p) = 0`` moves by ``dt = -(dg/dx dx + dg/dp dp) / (dg/dx f + dg/dt)``
    (implicit function theorem); for a plateau ``g`` is its defining logarithmic slope, whose
    derivative takes second derivatives of the loss. Source: Hairer, Norsett, Wanner 1993,
    section I.14.
    """
    # Imported here: to solve a field that is known takes no SymPy.
    from odekit.field.tangent_field import tangent_field

    refuse_unknown(unknown, (*OPTIONS, "to"))
    origin = origin_of(field)
    if origin is None or not hasattr(origin, "state_names"):
        raise InputError(
            "sensitivities needs the vector field to differentiate, which this compiled field no "
            "longer has; give the field itself."
        )
    save = read_option(save, Save, "save")
    compiled = compiled_for(field, y0, params, sizes)
    layout = compiled.layout
    flat, packed = layout.pack(y0), layout.pack_parameters(params)
    state, values = layout.unpack(flat), layout.unpack_parameters(packed)
    watched = read_events(events)
    refuse_callables(watched)
    directions = read_directions(to, layout, state, values)
    initial, moved = _stacks(directions, state, values)
    tangents = tangent_field(origin, moved, len(directions))
    chosen, reason = method, "asked for"
    if str(method).lower() == "auto":
        chosen, reason = _choose(compiled, flat, packed, t, start, save, watched, tolerance)
    natural = _natural_sizes(
        compiled, state, packed, t, values, chosen, [e for e in watched if _ends(e)], limits, start
    )
    run = solve_quietly(
        _compile(tangents, compiled),
        {**state, **{tangents.state_names[n]: a for n, a in initial.items()}},
        t,
        {**values, **{tangents.parameter_names[n]: a for n, a in moved.items()}},
        None,
        chosen,
        _tolerance(tolerance, compiled, flat, chosen, directions, tangents, natural, values),
        save,
        [dataclasses.replace(event, label=str(k)) for k, event in enumerate(watched)],
        limits,
        progress,
        start,
    )
    run = dataclasses.replace(run, stats={**run.stats, "reason": reason})
    result = _assemble(run, tangents, directions, initial, moved, watched, values, start)
    if throw and not run.status.ok:
        raise SolveError(run.message, result.trajectory)
    return result


def _stacks(
    directions: list[Direction], state: Mapping[str, Array], values: Mapping[str, Array]
) -> tuple[dict[str, Array], dict[str, Array]]:
    """All states' tangents at the start, and the directions of the parameters that move."""
    initial = {
        name: np.stack([d.states.get(name, np.zeros(own.shape)) for d in directions])
        for name, own in state.items()
    }
    moving = [name for name in values if any(name in d.params for d in directions)]
    moved = {
        name: np.stack([d.params.get(name, np.zeros(values[name].shape)) for d in directions])
        for name in moving
    }
    return initial, moved


def _choose(
    compiled: CompiledField,
    flat: Array,
    packed: Array,
    t: Any,
    start: float,
    save: Save,
    watched: tuple[Crossing | Plateau, ...],
    tolerance: Tolerance | None,
) -> tuple[str, str]:
    """The method for the field alone: tangents have its time scales and no others."""
    from odekit.integrate.auto import choose

    first, end, outputs = read_times(t, start)
    task = Task(
        compiled=compiled,
        y0=flat,
        p=packed,
        start=first,
        end=end,
        outputs=outputs,
        save=save,
        dense=outputs is None if save.dense is None else save.dense,
        watcher=make_watcher(watched, compiled, packed, first, flat),
    )
    method, reason = choose(task, read_option(tolerance, Tolerance, "tolerance"))
    return method.name, f"as for the field alone: {reason}"


def _compile(tangents: TangentField, compiled: CompiledField) -> CompiledField:
    """Compile for the sizes of the compiled field, which its arrays tell."""
    shapes = {
        name: np.zeros(shape)
        for name, shape in (*compiled.layout.states, *compiled.layout.parameters)
    }
    sizes = tangents.origin.infer_sizes(
        {name: shapes[name] for name, _ in compiled.layout.states},
        {name: shapes[name] for name, _ in compiled.layout.parameters},
        dict(compiled.layout.constants),
    )
    return compile_field(tangents.field, {**sizes, **tangents.sizes}, compiled.effort)


def _ends(event: Crossing | Plateau) -> bool:
    return isinstance(event, Crossing) and event.terminal


def _natural_sizes(
    compiled: CompiledField,
    state: Mapping[str, Array],
    packed: Array,
    t: Any,
    values: Mapping[str, Array],
    method: str,
    terminal: list[Crossing | Plateau],
    limits: Limits | None,
    start: float,
) -> dict[str, float]:
    """How large a state gets, or how far it moves in the time run so far if that is more.

    Tangents differ in size by many decades (a drop late in a run moves by the time itself), and
    rounding in the large ones must not be taken for error in the small ones: a bound relative to
    each entry alone would stall the steps.
    """
    first, end, _ = read_times(t, start)
    alone = solve_quietly(
        compiled,
        state,
        end,
        values,
        None,
        method,
        Tolerance(relative=ROUGH),
        Save(dense=False, points=POINTS),
        terminal,
        limits,
        False,
        first,
    )
    flat = np.ascontiguousarray(
        np.hstack([alone.states[name].reshape(len(alone), -1) for name in compiled.layout.slices])
    )
    sizes = np.abs(flat)
    rate = np.empty(compiled.layout.size)
    with np.errstate(all="ignore"):
        for time, row, size in zip(alone.t, flat, sizes, strict=True):
            compiled.rhs(time, row, packed, rate)
            np.maximum(size, (time - first) * np.abs(rate), out=size)
    reached = np.where(np.isfinite(sizes), sizes, 0.0)
    return {
        name: float(np.max(reached[:, where], initial=0.0))
        for name, where in compiled.layout.slices.items()
    }


def _tolerance(
    given: Tolerance | None,
    compiled: CompiledField,
    flat: Array,
    method: str,
    directions: list[Direction],
    tangents: TangentField,
    natural: Mapping[str, float],
    values: Mapping[str, Array],
) -> Tolerance:
    tolerance: Tolerance = read_option(given, Tolerance, "tolerance")
    relative = tolerance.relative_for(compiled.layout, flat, find_method(method).relative)
    own = compiled.layout.unpack(tolerance.absolute_for(compiled.layout, flat, relative))
    state = compiled.layout.unpack(flat)
    units = [unit_of(direction, state, values) for direction in directions]
    absolute = dict(own)
    for name, bound in own.items():
        size = SHARE * relative * natural[name]
        # Never below what the states themselves are resolved to.
        absolute[tangents.state_names[name]] = np.stack(
            [np.maximum(bound, size) / unit for unit in units]
        )
    return Tolerance(
        relative=relative, absolute=absolute, floor=tolerance.floor, verify=tolerance.verify
    )


def _assemble(
    run: Solution,
    tangents: TangentField,
    directions: list[Direction],
    initial: dict[str, Array],
    moved: dict[str, Array],
    watched: tuple[Crossing | Plateau, ...],
    values: dict[str, Array],
    start: float,
) -> Sensitivities:
    names = tangents.state_names
    states, own = split(run.states, names)
    origin: Any = tangents.origin
    loss = None
    if origin.loss is not None:
        loss = tangents.differential(origin.loss).evaluate(states, own, values, moved)
    events = event_sensitivities(run.events, watched, tangents, values, moved, start)
    trajectory = dataclasses.replace(
        run,
        states=states,
        events=tuple(e.event for e in events),
        params=values,
        interpolant=_first(run.interpolant, sum(s[0].size for s in initial.values())),
        field=origin,
    )
    return Sensitivities(
        trajectory=trajectory,
        labels=tuple(direction.label for direction in directions),
        states=own,
        loss=loss,
        events=events,
        initial=initial,
        parameters=moved,
        tangent_field=tangents,
        run=run,
    )


def _first(interpolant: Interpolant | None, count: int) -> Interpolant | None:
    """The interpolant of the leading entries."""
    if interpolant is None:
        return None
    return dataclasses.replace(interpolant, coefficients=interpolant.coefficients[:, :, :count])
