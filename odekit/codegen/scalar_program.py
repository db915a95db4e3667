"""A scalar field as source: right-hand side, loss and exact Jacobian."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy as sp

from odekit.codegen.repetition import Run, Spot, find_runs
from odekit.codegen.scalar_source import HEAD, OPTIONS, indented, straight_line
from odekit.field.scalar_field import ScalarField

__all__ = ["ScalarProgram", "plan_scalar"]


@dataclass(frozen=True)
class ScalarProgram:
    """A scalar field, written out."""

    states: tuple[tuple[str, tuple[int, ...]], ...]
    parameters: tuple[tuple[str, tuple[int, ...]], ...]
    symmetric: tuple[str, ...]
    scratch: int
    main: str
    jacobian: str
    values: str
    pattern: tuple[list[int], list[int]] | None


def plan_scalar(field: ScalarField) -> ScalarProgram:
    """Write a scalar field's functions."""
    return _Planner(field).program()


class _Planner:
    def __init__(self, field: ScalarField) -> None:
        self.field = field
        self.states = [s for _, symbols in field.state_groups.values() for s in symbols]
        given = [s for _, symbols in field.parameter_groups.values() for s in symbols]
        self.first = len(given)
        self.spots: dict[sp.Symbol, Spot] = {}
        # Real symbols: the derivative of |x| is then sign(x) and not one of a complex modulus.
        self.local: dict[Any, sp.Symbol] = {}
        for k, s in enumerate(self.states):
            self.local[s] = self._symbol("y", k)
        for k, s in enumerate(given):
            self.local.setdefault(s, self._symbol("p", k))
        self.moving = {self.local[s] for s in self.states}
        self.hoisted: dict[Any, sp.Symbol] = {}
        self._seen: dict[Any, Any] = {}
        self._renamed: dict[Any, Any] = {}
        self._kinds: dict[Any, int] = {}

    def _symbol(self, buffer: str, address: int) -> sp.Symbol:
        symbol = sp.Symbol(f"{buffer}{address:08d}", real=True)
        self.spots[symbol] = (buffer, address)
        return symbol

    def program(self) -> ScalarProgram:
        """Write everything."""
        field = self.field
        rate = dict(zip(field.states, field.rates, strict=True))
        rates = [self._read(rate[s]) for s in self.states]
        loss = None if field.loss is None else self._read(field.loss)
        n = len(rates)
        runs = find_runs(range(n), rates, self.spots)
        main = [
            HEAD,
            self._prepare(),
            f"@njit(void(float64, VECTOR, VECTOR, VECTOR), {OPTIONS})\ndef rhs(t, y, p, out):\n"
            + indented(self._assignments(runs)),
        ]
        if loss is not None:
            main.append(
                f"@njit(float64(VECTOR, VECTOR), {OPTIONS})\ndef loss(y, p):\n"
                + indented(self._sum(loss))
            )
        slopes = [part for run in runs for part in self._slopes(run, n)]
        jacobian = "\n\n".join(
            [
                HEAD,
                f"@njit(void(float64, VECTOR, VECTOR, MATRIX), {OPTIONS})\n"
                "def jacobian(t, y, p, out):\n"
                + indented(
                    ["J = out.reshape(out.size)", "J[:] = 0.0", *self._assignments(slopes, "J")]
                ),
            ]
        )
        # Each entry is written once: symbols of an equation stand for different states.
        addresses = [s.first.target + k * s.step for s in slopes for k in range(s.count)]
        pattern, values = None, ""
        if len(addresses) < n * n:
            pattern = ([a // n for a in addresses], [a % n for a in addresses])
            values = "\n\n".join(
                [
                    HEAD,
                    f"@njit(void(float64, VECTOR, VECTOR, VECTOR), {OPTIONS})\n"
                    "def jacobian_values(t, y, p, out):\n"
                    + indented(self._assignments(_packed(slopes))),
                ]
            )
        return ScalarProgram(
            tuple((name, shape) for name, (shape, _) in field.state_groups.items()),
            tuple((name, shape) for name, (shape, _) in field.parameter_groups.items()),
            tuple(
                name
                for name, (shape, symbols) in field.parameter_groups.items()
                if len(shape) == 2 and len(set(symbols)) < len(symbols)
            ),
            len(self.hoisted),
            "\n\n".join(main),
            jacobian,
            values,
            pattern,
        )

    # -- what depends on parameters alone -------------------------------------------------------

    def _read(self, expression: Any) -> Any:
        return self._hoist(self._rename(sp.sympify(expression)))

    def _rename(self, expression: Any) -> Any:
        """Put in local symbols; each distinct part is visited once."""
        if expression in self.local:
            return self.local[expression]
        if not expression.args:
            return expression
        if expression not in self._renamed:
            parts = [self._rename(a) for a in expression.args]
            self._renamed[expression] = expression.func(*parts)
        return self._renamed[expression]

    def _kind(self, expression: Any) -> int:
        """0 for a number, 1 with parameters alone, 2 with states."""
        if expression.is_Symbol:
            return 2 if expression in self.moving else 1
        if not expression.args:
            return 0
        if expression not in self._kinds:
            self._kinds[expression] = max(self._kind(a) for a in expression.args)
        return self._kinds[expression]

    def _hoist(self, expression: Any) -> Any:
        """Replace the largest parts that hold parameters but no state."""
        kind = self._kind(expression)
        if kind == 0 or not expression.args:
            return expression
        if kind == 1:
            return self._keep(expression)
        if expression not in self._seen:
            self._seen[expression] = self._hoisted_form(expression)
        return self._seen[expression]

    def _hoisted_form(self, expression: Any) -> Any:
        if not isinstance(expression, sp.Expr) or expression.is_Piecewise:
            return expression
        if expression.is_Add or expression.is_Mul:
            fixed = [a for a in expression.args if self._kind(a) < 2]
            rest = [self._hoist(a) for a in expression.args if self._kind(a) == 2]
            if not fixed:
                return expression.func(*rest)
            inner = fixed[0] if len(fixed) == 1 else expression.func(*fixed)
            return expression.func(self._hoist(inner), *rest)
        return expression.func(*(self._hoist(a) for a in expression.args))

    def _keep(self, expression: Any) -> Any:
        if expression.is_Symbol:
            return expression
        if expression not in self.hoisted:
            self.hoisted[expression] = self._symbol("p", self.first + len(self.hoisted))
        return self.hoisted[expression]

    def _prepare(self) -> str:
        lines = ['"""Fill in what depends on the parameters alone."""']
        targets = [f"p[{self.spots[s][1]}]" for s in self.hoisted.values()]
        lines += straight_line(targets, list(self.hoisted), self.spots)
        return "def prepare(p):\n" + indented(lines)

    # -- writing --------------------------------------------------------------------------------

    def _assignments(self, runs: Iterable[Run], buffer: str = "out") -> list[str]:
        single = [run for run in runs if run.count == 1]
        lines = straight_line(
            [f"{buffer}[{run.first.target}]" for run in single],
            [run.first.expression for run in single],
            self.spots,
        )
        for run in runs:
            if run.count > 1:
                target = f"{buffer}[{_address(run.first.target, run.step)}]"
                lines += _loop(run, [target], [run.first.expression])
        return lines

    def _sum(self, loss: Any) -> list[str]:
        terms = list(sp.Add.make_args(loss))
        runs = find_runs([0] * len(terms), terms, self.spots)
        single = sp.Add(*(run.first.expression for run in runs if run.count == 1))
        lines = straight_line(["value"], [single], self.spots)
        for run in runs:
            if run.count > 1:
                lines += _loop(run, ["term"], [run.first.expression], ["value += term"])
        return [*lines, "return value"]

    def _slopes(self, run: Run, n: int) -> list[Run]:
        """A run of equations differentiated by each of its states."""
        out = []
        for symbol, (buffer, address), step in zip(
            run.first.symbols, run.first.spots, run.steps, strict=True
        ):
            if buffer != "y":
                continue
            slope = sp.diff(run.first.expression, symbol)
            if slope == 0:
                continue
            kept = [
                (s, spot, st)
                for s, spot, st in zip(run.first.symbols, run.first.spots, run.steps, strict=True)
                if s in slope.free_symbols
            ]
            first = type(run.first)(
                run.first.target * n + address,
                slope,
                tuple(s for s, _, _ in kept),
                tuple(spot for _, spot, _ in kept),
            )
            out.append(Run(first, run.count, run.step * n + step, tuple(st for *_, st in kept)))
        return out


def _packed(slopes: Iterable[Run]) -> list[Run]:
    """Runs that write side by side instead of into a matrix."""
    out: list[Run] = []
    start = 0
    for run in slopes:
        out.append(replace(run, first=replace(run.first, target=start), step=1))
        start += run.count
    return out


def _address(start: int, step: int) -> str:
    parts = [str(start)] if start or not step else []
    if step:
        parts.append("k" if step == 1 else f"{step} * k")
    return " + ".join(parts)


def _loop(
    run: Run, targets: Sequence[str], expressions: Sequence[Any], after: Sequence[str] = ()
) -> list[str]:
    where = {
        symbol: f"{buffer}[{_address(address, step)}]"
        for symbol, (buffer, address), step in zip(
            run.first.symbols, run.first.spots, run.steps, strict=True
        )
    }
    body = [*straight_line(targets, expressions, where), *after]
    return [f"for k in range({run.count}):", *(f"    {line}" for line in body)]
