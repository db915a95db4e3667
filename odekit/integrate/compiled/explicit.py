"""Tsit5 or DOP853 with ROCK4 in one compiled loop: the one cheaper per unit time is at work.

A gradient flow alternates between plateaus, where a plain explicit method creeps along its
stability limit, and drops, where accuracy sets the step and high order pays. The methods lay out
their workspace alike, so a change costs no evaluation. Only for fields whose Jacobian is symmetric
(real spectrum), which ROCK4 needs.
"""

# Loops are typed by their Numba signatures.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from numba import njit

from odekit.integrate.compiled.addresses import CHANGING_SIGNATURE, loop_at, table_loop_at
from odekit.integrate.compiled.slots import (
    AGE,
    CALM,
    LOOKS,
    MODE,
    PATIENCE,
    RECORDED,
    RENEW,
    ROW_FREE,
    STREAK,
    SWITCHES,
    Code,
)
from odekit.integrate.compiled.stepping import UNCOUNTED

ORDER = 5
DENSE, ROWS = 7, ROW_FREE + 17  # those of DOP853, the largest
_STIFF, _RELAXED = int(Code.STIFF), int(Code.RELAXED)
FIRST_LOOKS, MOST_LOOKS = 2, 4


@njit(CHANGING_SIGNATURE, cache=True, **UNCOUNTED)
def advance(
    rhs_address, plain_address, stabilised_address, table, p, y, work, clock, counts, atol, t_out,
    y_out, rec_t, rec_c, flag,
):  # fmt: skip
    """Step until the end, a full record or trouble; arguments as in `run.Run`.

    The two loops are called by address: linked into one function they run a fifth slower, and
    would be compiled again.
    """
    plain, stabilised = loop_at(plain_address), table_loop_at(stabilised_address)
    if counts[LOOKS] == 0:
        counts[LOOKS] = FIRST_LOOKS
    patience = counts[PATIENCE]
    if patience == 0:
        counts[PATIENCE] = 20
    filled = 0
    while True:
        # A record may be filled by both methods in turn: each sees the part that is left.
        rest_t, rest_c = rec_t[filled:], rec_c[filled:]
        if counts[MODE] == 0:
            code = plain(
                rhs_address, p, y, work, clock, counts, atol, t_out, y_out, rest_t, rest_c, flag
            )
        else:
            code = stabilised(
                rhs_address, table, p, y, work, clock, counts, atol, t_out, y_out, rest_t, rest_c,
                flag,
            )  # fmt: skip
        filled += counts[RECORDED]
        if code == _STIFF:
            counts[MODE] = 1
            counts[AGE] = RENEW
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
