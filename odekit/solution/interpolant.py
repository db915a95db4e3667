"""A method's own dense output, held as polynomials so that it can be stored and evaluated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from odekit.errors import InputError

__all__ = ["Interpolant"]


@dataclass(frozen=True, eq=False)
class Interpolant:
    """Piecewise polynomial in ``theta = (t - breaks[i]) / (breaks[i+1] - breaks[i])``.

    Parameters
    ----------
    breaks : ndarray (M+1,)
        Ends of the accepted steps, increasing.
    coefficients : ndarray (M, degree+1, n)
        On each step; methods of varying order are padded with zeros.
    nested : bool
        False: coefficients of ``theta**k``. True: of the nested form
        ``c0 + theta (c1 + (1 - theta) (c2 + theta (c3 + ...)))`` of Hairer's Runge-Kutta codes.
    """

    breaks: NDArray[np.float64]
    coefficients: NDArray[np.float64]
    nested: bool = False

    def __call__(self, t: NDArray[np.float64] | float) -> NDArray[np.float64]:
        """Evaluate at times inside the span; one rounding beyond it is accepted.

        Parameters
        ----------
        t : float or ndarray (M,)

        Returns
        -------
        ndarray (n,) or (M, n)
        """
        times = np.asarray(t, dtype=np.float64)
        first, last = self.breaks[0], self.breaks[-1]
        slack = 4 * np.spacing(max(abs(first), abs(last)))
        if times.size and not bool(np.all((times >= first - slack) & (times <= last + slack))):
            raise InputError(
                f"Time outside the run: the solution covers {first:g} to {last:g}; "
                "solve to a later end."
            )
        step = np.searchsorted(self.breaks, times, side="right") - 1
        step = np.clip(step, 0, len(self.coefficients) - 1)
        width = self.breaks[step + 1] - self.breaks[step]
        theta = ((times - self.breaks[step]) / width)[..., None]
        chosen = self.coefficients[step]
        out = chosen[..., -1, :].copy()
        for k in range(self.coefficients.shape[1] - 2, -1, -1):
            factor = 1 - theta if self.nested and k % 2 else theta
            out = out * factor + chosen[..., k, :]
        return out
