"""Tsit5 or DOP853 with ROCK4 in one compiled loop: the one cheaper per unit time is at work.

A gradient flow alternates between plateaus, where a plain explicit method creeps along its
stability limit, and drops, where accuracy sets the step and high order pays. The methods lay out
their workspace alike, so a change costs no evaluation. Only for fields whose Jacobian is symmetric
(real spectrum), which ROCK4 needs.
"""

# Loops are typed by their Numba signatures.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from numba import float64, int64, njit

from odekit.integrate.compiled import dop853, rock4, tsit5
from odekit.integrate.compiled.slots import (
    AGE,
    CALM,
    LOOKS,
    MODE,
    PATIENCE,
    PLAIN,
    RECORDED,
    STREAK,
    SWITCHES,
    Code,
)

ORDER = 5
DENSE = dop853.DENSE
ROWS = max(tsit5.ROWS, rock4.ROWS, dop853.ROWS)
_five, _eight, _stabilised = tsit5.advance, dop853.advance, rock4.advance
_STIFF, _RELAXED, _RENEW = int(Code.STIFF), int(Code.RELAXED), rock4.RENEW
FIRST_LOOKS, MOST_LOOKS = 2, 4


@njit(
    int64(
        int64, float64[:, ::1], float64[::1], float64[::1], float64[:, ::1], float64[::1],
        int64[::1], float64[::1], float64[::1], float64[:, ::1], float64[:, ::1],
        float64[:, :, ::1], int64[::1],
    ),
    cache=True,
    nogil=True,
    error_model="numpy",
)  # fmt: skip
def advance(rhs_address, table, p, y, work, clock, counts, atol, t_out, y_out, rec_t, rec_c, flag):
    """Step until the end, a full record or trouble; arguments as in `run.Run`."""
    if counts[LOOKS] == 0:
        counts[LOOKS] = FIRST_LOOKS
    patience = counts[PATIENCE]
    if patience == 0:
        counts[PATIENCE] = 20
    filled = 0
    while True:
        # A record may be filled by both methods in turn: each sees the part that is left.
        rest_t, rest_c = rec_t[filled:], rec_c[filled:]
        if counts[MODE] == 0 and counts[PLAIN] == 8:
            code = _eight(
                rhs_address, p, y, work, clock, counts, atol, t_out, y_out, rest_t, rest_c, flag
            )
        elif counts[MODE] == 0:
            code = _five(
                rhs_address, p, y, work, clock, counts, atol, t_out, y_out, rest_t, rest_c, flag
            )
        else:
            code = _stabilised(
                rhs_address,
                table,
                p,
                y,
                work,
                clock,
                counts,
                atol,
                t_out,
                y_out,
                rest_t,
                rest_c,
                flag,
            )
        filled += counts[RECORDED]
        if code == _STIFF:
            counts[MODE] = 1
            counts[AGE] = _RENEW
            counts[CALM] = 0
            counts[SWITCHES] += 1
        elif code == _RELAXED:
            counts[MODE] = 0
            counts[STREAK] = 0
            # Each return makes the next departure need more evidence: no switching to and fro.
            counts[LOOKS] = min(2 * counts[LOOKS], MOST_LOOKS)
            counts[SWITCHES] += 1
        else:
            break
        if rec_t.shape[0] > 0 and filled == rec_t.shape[0]:
            code = 1
            break
    counts[RECORDED] = filled
    if patience == 0:
        counts[PATIENCE] = 0
    return code
