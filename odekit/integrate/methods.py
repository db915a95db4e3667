"""The registry of methods: a new one is one file and one entry here."""

from __future__ import annotations

from functools import partial

from odekit.errors import unknown_name
from odekit.integrate.task import Method, Outcome, Task

__all__ = ["METHODS", "find_method"]


def _scipy(name: str, task: Task) -> Outcome:
    # SciPy is imported at first use: a compiled method does not need it.
    from odekit.integrate.scipy_loop import run

    return run(name, task)


def _compiled(loop: str, stiff: str | None, plain: str, task: Task) -> Outcome:
    from odekit.integrate.compiled_loop import Settings, run

    return run(Settings(loop, plain, stiff, PATIENCE if stiff else 0), task)


def _blocks(task: Task) -> Outcome:
    from odekit.integrate.compiled_loop import run_blocks

    return run_blocks(task)


PATIENCE = 2000
"""An explicit run goes on with Rodas5P when stability leaves more steps than this to take."""


def _loop(
    name: str,
    loop: str,
    relative: float,
    stiff: bool,
    source: str,
    then: str | None = None,
    plain: str = "Tsit5",
) -> Method:
    alone = loop if then is None else None
    return Method(
        name, partial(_compiled, loop, then, plain), relative, stiff, source, alone, plain
    )


def _entry(name: str, relative: float, stiff: bool, source: str) -> Method:
    return Method(name, partial(_scipy, name), relative, stiff, source)


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        _entry("LSODA", 1e-10, True, "Hindmarsh 1983, Petzold 1983; SciPy"),
        _entry("Radau", 1e-9, True, "Hairer, Wanner 1996, IV.8; SciPy"),
        _entry("BDF", 1e-10, True, "Shampine, Reichelt 1997; SciPy"),
        _entry("DOP853", 1e-9, False, "Hairer, Norsett, Wanner 1993, II.5; SciPy"),
        _entry("RK45", 1e-9, False, "Dormand, Prince 1980; SciPy"),
        _loop("Tsit5", "Tsit5", 1e-9, False, "Tsitouras 2011"),
        _loop("CompiledDOP853", "DOP853", 1e-9, False, "Hairer, Norsett, Wanner 1993, II.5"),
        _loop("ROCK4", "ROCK4", 1e-9, False, "Abdulle 2002"),
        _loop("Rodas5P", "Rodas5P", 1e-9, True, "Steinebach 2023"),
        _loop("Tsit5-ROCK4", "explicit", 1e-9, False, "Tsitouras 2011, Abdulle 2002, in turn"),
        _loop(
            "DOP853-ROCK4",
            "explicit",
            1e-9,
            False,
            "Hairer, Norsett, Wanner 1993, II.5, Abdulle 2002, in turn",
            plain="DOP853",
        ),
        _loop(
            "Tsit5-Rodas5P", "Tsit5", 1e-9, True, "Tsitouras 2011, then Steinebach 2023", "Rodas5P"
        ),
        Method("Rodas5P-blocks", _blocks, 1e-9, True, "Steinebach 2023, component by component"),
    )
}


def find_method(name: str) -> Method:
    """Return the method of this name, whatever its case."""
    for known, method in METHODS.items():
        if known.lower() == str(name).lower():
            return method
    raise unknown_name("method", name, ["auto", *METHODS])
