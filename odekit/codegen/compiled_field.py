"""The value that compilation returns: machine code for a field, and where its arrays are."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odekit.codegen.layout import Layout

__all__ = ["CompiledField"]

RightHandSide = Callable[
    [float, NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]], None
]
Jacobian = RightHandSide
LossFunction = Callable[[NDArray[np.float64], NDArray[np.float64]], float]
Pattern = tuple[NDArray[np.intp], NDArray[np.intp]]


@dataclass(frozen=True, eq=False)
class CompiledField:
    """A vector field as machine code on flat float64 arrays.

    Parameters
    ----------
    rhs : Numba function ``void(float64, float64[::1], float64[::1], float64[::1])``
        ``rhs(t, y, p, out)`` writes ``dy/dt (n,)`` to ``out``. It allocates nothing and keeps
        no state but the scratch tail of ``p``: each thread needs its own copy of ``p``.
    layout : Layout
        Names, shapes and order of states and parameters.
    loss : Numba function ``float64(float64[::1], float64[::1])``, optional
        ``loss(y, p)``; None when the field has no loss.
    source : str
        The generated Python source, readable.
    key : str
        Content hash of the source and of everything else that the machine code depends on.
    effort : {"full", "quick"}
        "full" for the fastest call, "quick" for the least time to the first one.
    compile_seconds : float
        Time spent on generating and compiling or loading, in seconds.
    from_cache : bool
        Whether the machine code came from the disk.
    symmetric : bool
        Whether the Jacobian is known to be symmetric, as for a gradient flow of one rate.
    pattern : (rows, columns) or None
        Integer arrays of the Jacobian's entries that can differ from zero; None for dense.
    autonomous : bool
        Whether ``rhs`` does not depend on time.
    make_jacobian : callable, optional
        Compiles and returns the Jacobian; called once, at the first use of `jacobian`.
    make_values : callable, optional
        Compiles and returns `jacobian_values`.
    rebuild : callable, optional
        A picklable callable without arguments that returns an equal compiled field.
    origin : object, optional
        The vector field that was compiled; dropped by pickling.
    kept : dict
        What solvers found out about the field, kept from run to run.
    """

    rhs: RightHandSide
    layout: Layout
    loss: LossFunction | None = None
    source: str = ""
    key: str = ""
    effort: str = "full"
    compile_seconds: float = 0.0
    from_cache: bool = False
    symmetric: bool = False
    pattern: Pattern | None = None
    autonomous: bool = True
    make_jacobian: Callable[[], Jacobian] | None = field(default=None, repr=False)
    make_values: Callable[[], RightHandSide] | None = field(default=None, repr=False)
    rebuild: Callable[[], CompiledField] | None = field(default=None, repr=False)
    origin: Any = field(default=None, repr=False)
    kept: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def has_jacobian(self) -> bool:
        """Whether an analytic Jacobian can be had."""
        return self.make_jacobian is not None

    @cached_property
    def jacobian(self) -> Jacobian:
        """``jacobian(t, y, p, out)`` writes ``d rhs_i / d y_j`` to ``out (n, n)``, all entries.

        Numba function of signature ``void(float64, float64[::1], float64[::1],
        float64[:, ::1])``, compiled at first use.
        """
        if self.make_jacobian is None:
            raise AttributeError("This compiled field has no analytic Jacobian.")
        return self.make_jacobian()

    @cached_property
    def jacobian_values(self) -> RightHandSide | None:
        """``jacobian_values(t, y, p, out)`` writes the entries of `pattern` alone, in its order.

        Numba function of the signature of ``rhs``, compiled at first use; None where the Jacobian
        is dense.
        """
        return None if self.make_values is None else self.make_values()

    def __repr__(self) -> str:
        states = ", ".join(f"{name} {shape}" for name, shape in self.layout.states)
        return f"CompiledField({states}; effort={self.effort!r}, key={self.key[:12]!r})"

    def __reduce__(self) -> tuple[Callable[[], CompiledField], tuple[()]]:
        # Machine code does not travel; the other process rebuilds or loads it from its source.
        if self.rebuild is None:
            raise pickle.PicklingError(
                "This compiled field has no recipe to rebuild it; compile it in the worker."
            )
        return self.rebuild, ()
