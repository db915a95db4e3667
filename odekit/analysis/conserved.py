"""`conserved`: conserved quantities of any field, found and not supplied."""

from __future__ import annotations

from typing import Any

from odekit.analysis.conserved_scalar import conserved_scalar
from odekit.analysis.invariants import Invariants
from odekit.analysis.scalar_system import is_scalar_field, read_system
from odekit.errors import InputError

__all__ = ["conserved"]


def conserved(field: Any, degree: int = 2) -> Invariants:
    """Find conserved quantities of a field.

    Parameters
    ----------
    field : VectorField
        In component form, or in tensor form at concrete sizes: all polynomials of at most
        ``degree`` in the states, one for each independent quantity. In tensor form at symbolic
        sizes: quadratic contractions of pairs of states, one for each family, for every size.
    degree : int
        Largest degree of the polynomial ansatz (tensor families are quadratic).

    Returns
    -------
    Invariants
        A sequence, with ``.complete`` saying in what sense nothing is missing.

    Raises
    ------
    InputError
        If the ansatz is too large, or ``degree`` is no positive integer.

    Notes
    -----
    The time derivative of an ansatz is linear in its coefficients. It is evaluated at random
    points modulo a prime; the null space gives candidates, whose coefficients are turned back to
    fractions and whose time derivative is then brought to zero exactly. For a gradient flow of
    one rate a quadratic ``theta' X theta`` is conserved just when ``grad L . X theta = 0``, that
    is when ``exp(s X)`` leaves the loss unchanged: its generator.
    """
    if not isinstance(degree, int) or isinstance(degree, bool) or degree < 1:
        raise InputError(f"degree is {degree!r}; give a positive integer.")
    if is_scalar_field(field):
        return conserved_scalar(read_system(field), degree)
    from odekit.analysis.conserved_tensor import conserved_tensor

    return conserved_tensor(field, degree)
