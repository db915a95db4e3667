"""Tsit5: explicit Runge-Kutta of order 5(4), 7 stages (first same as last), dense output order 4.

Source: Ch. Tsitouras, "Runge-Kutta pairs of order 5(4) satisfying only the first column
simplifying assumption", Computers & Mathematics with Applications 62 (2011) 770-775: the pair and
the interpolant of its section 4. Step control: proportional-integral, which keeps the step just
inside the stability region where that is what limits it.
"""

# Loops are typed by their Numba signatures.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import math

import numpy as np
from numba import njit

from odekit.integrate.compiled.addresses import LOOP_SIGNATURE, rhs_at
from odekit.integrate.compiled.combine import combine
from odekit.integrate.compiled.slots import (
    AGE,
    H_LAST,
    LOG_ERROR,
    NONFINITE,
    PATIENCE,
    RECORDED,
    RHS,
    ROW_DENSE,
    ROW_F,
    ROW_FREE,
    ROW_NEW,
    ROW_VECTOR,
    ROW_WEIGHTS,
    RTOL,
    STARTED,
    STEPS,
    T_END,
    Code,
    H,
    T,
)
from odekit.integrate.compiled.stepping import (
    RUNNING,
    UNCOUNTED,
    accept_pi,
    check,
    clip,
    deliver,
    deliver_start,
    first_step,
    largest,
    limited_by_stability,
    reject,
    set_weights,
    state_code,
    sum_squares,
    wants_output,
)

ORDER = 5
K1 = ROW_F
K2, K3, K4, K5, K6, K7, TRIAL, S = range(ROW_FREE, ROW_FREE + 8)
DENSE = 4  # coefficient vectors of the interpolant
STABILITY = 3.5  # length of the negative real stability interval
ROWS = ROW_FREE + 8  # the shared rows, k2..k7, trial, scratch

C2, C3, C4, C5 = 0.161, 0.327, 0.9, 0.9800255409045097
A21 = 0.161
A31, A32 = -0.008480655492356989, 0.335480655492357
A41, A42, A43 = 2.8971530571054935, -6.359448489975075, 4.3622954328695815
A51, A52, A53, A54 = (
    5.325864828439257,
    -11.748883564062828,
    7.4955393428898365,
    -0.09249506636175525,
)
A61, A62, A63, A64, A65 = (
    5.86145544294642,
    -12.92096931784711,
    8.159367898576159,
    -0.071584973281401,
    -0.028269050394068383,
)
A71, A72, A73, A74, A75, A76 = (
    0.09646076681806523,
    0.01,
    0.4798896504144996,
    1.379008574103742,
    -3.290069515436081,
    2.324710524099774,
)
# Difference of the two solutions.
E1, E2, E3, E4, E5, E6, E7 = (
    -0.00178001105222577714,
    -0.0008164344596567469,
    0.007880878010261995,
    -0.1447110071732629,
    0.5823571654525552,
    -0.45808210592918697,
    1.0 / 66.0,
)

# b_s(theta) as published, in factored form: leading factor, then the polynomial's factors.
_WEIGHTS = (
    -1.0530884977290216
    * np.polymul(
        [1, -1.3299890189751412, 0],
        [1, -1.4364028541716351, 0.7139816917074209],
    ),
    0.1017 * np.polymul([1, 0, 0], [1, -2.1966568338249754, 1.2949852507374631]),
    2.490627285651252793 * np.polymul([1, 0, 0], [1, -2.38535645472061657, 1.57803468208092486]),
    -16.54810288924490272
    * np.polymul([1, 0, 0], np.polymul([1, -1.21712927295533244], [1, -0.61620406037800089])),
    47.37952196281928122
    * np.polymul([1, 0, 0], np.polymul([1, -1.203071208372362603], [1, -0.658047292653547382])),
    -34.87065786149660974 * np.polymul([1, 0, 0], np.polymul([1, -1.2], [1, -2.0 / 3.0])),
    2.5 * np.polymul([1, 0, 0], np.polymul([1, -1.0], [1, -0.6])),
)


def _nested(weights: tuple[np.ndarray, ...]) -> np.ndarray:
    """Coefficients (4, 7) of c2..c4 in the nested form of `stepping.evaluate` (row 0: c1)."""
    rows = np.zeros((4, len(weights)))
    for s, polynomial in enumerate(weights):
        a4, a3, a2, a1, _ = polynomial
        rows[0, s] = a1 + a2 + a3 + a4
        rows[3, s] = a4
        rows[2, s] = -a3 - 2.0 * a4
        rows[1, s] = rows[2, s] + rows[3, s] - a2
    return rows


INTERPOLANT = _nested(_WEIGHTS)
(D21, D22, D23, D24, D25, D26, D27) = (float(x) for x in INTERPOLANT[1])
(D31, D32, D33, D34, D35, D36, D37) = (float(x) for x in INTERPOLANT[2])
(D41, D42, D43, D44, D45, D46, D47) = (float(x) for x in INTERPOLANT[3])

ALPHA, BETA = 0.7 / 5.0, 0.4 / 5.0
_DONE, _FULL, _NAN, _STIFF = int(Code.DONE), int(Code.RECORD_FULL), int(Code.NAN), int(Code.STIFF)


@njit(LOOP_SIGNATURE, cache=True, **UNCOUNTED)
def advance(rhs_address, p, y, work, clock, counts, atol, t_out, y_out, rec_t, rec_c, flag):
    """Step until the end, a full record or trouble; arguments as in `run.Run`."""
    rhs = rhs_at(rhs_address)
    n = y.size
    k1, w, new = work[ROW_F], work[ROW_WEIGHTS], work[ROW_NEW]
    c, vector = work[ROW_DENSE : ROW_DENSE + DENSE], work[ROW_VECTOR]
    k2, k3, k4, k5, k6, k7 = work[K2], work[K3], work[K4], work[K5], work[K6], work[K7]
    trial, s = work[TRIAL], work[S]
    rtol = clock[RTOL]
    counts[RECORDED] = 0
    if counts[STARTED] == 0:
        rhs(clock[T], y, p, k1)
        counts[RHS] += 1
        counts[STARTED] = 1
        if not math.isfinite(largest(k1)):
            return _NAN
        set_weights(y, atol, rtol, w)
        if clock[H] <= 0.0:
            first_step(rhs, p, y, k1, w, trial, k2, s, clock, counts, ORDER)
        deliver_start(clock[T], y, t_out, y_out, counts)
    while clock[T] < clock[T_END]:
        if rec_t.shape[0] > 0 and counts[RECORDED] == rec_t.shape[0]:
            return _FULL
        code = check(y, k1, clock, counts, flag)
        if code != RUNNING:
            return code
        t = clock[T]
        h = clip(clock)
        last = h == clock[T_END] - t
        combine(work, TRIAL, y, (h * A21,), (K1,))
        rhs(t + C2 * h, trial, p, k2)
        combine(work, TRIAL, y, (h * A31, h * A32), (K1, K2))
        rhs(t + C3 * h, trial, p, k3)
        combine(work, TRIAL, y, (h * A41, h * A42, h * A43), (K1, K2, K3))
        rhs(t + C4 * h, trial, p, k4)
        combine(work, TRIAL, y, (h * A51, h * A52, h * A53, h * A54), (K1, K2, K3, K4))
        rhs(t + C5 * h, trial, p, k5)
        combine(work, TRIAL, y, (h * A61, h * A62, h * A63, h * A64, h * A65), (K1, K2, K3, K4, K5))
        t_new = clock[T_END] if last else t + h
        rhs(t_new, trial, p, k6)
        combine(
            work, ROW_NEW, y,
            (h * A71, h * A72, h * A73, h * A74, h * A75, h * A76),
            (K1, K2, K3, K4, K5, K6),
        )  # fmt: skip
        rhs(t_new, new, p, k7)
        counts[RHS] += 6
        combine(
            work, S, None,
            (h * E1, h * E2, h * E3, h * E4, h * E5, h * E6, h * E7),
            (K1, K2, K3, K4, K5, K6, K7),
        )  # fmt: skip
        for i in range(n):
            s[i] = w[i] * s[i]
        err = math.sqrt(sum_squares(s) / n)
        if not err <= 1.0:
            reject(err, h, clock, counts, 0.2)
            continue
        counts[STEPS] += 1
        counts[NONFINITE] = 0
        if wants_output(t_new, t_out, rec_t, counts):
            for i in range(n):
                c[0, i] = new[i] - y[i]
            combine(
                work, ROW_DENSE + 1, None,
                (h * D21, h * D22, h * D23, h * D24, h * D25, h * D26, h * D27),
                (K1, K2, K3, K4, K5, K6, K7),
            )  # fmt: skip
            combine(
                work, ROW_DENSE + 2, None,
                (h * D31, h * D32, h * D33, h * D34, h * D35, h * D36, h * D37),
                (K1, K2, K3, K4, K5, K6, K7),
            )  # fmt: skip
            combine(
                work, ROW_DENSE + 3, None,
                (h * D41, h * D42, h * D43, h * D44, h * D45, h * D46, h * D47),
                (K1, K2, K3, K4, K5, K6, K7),
            )  # fmt: skip
            deliver(t, h, y, c, t_new, new, t_out, y_out, rec_t, rec_c, counts)
        clock[H_LAST] = h
        accept_pi(err, h, last, clock, counts, ALPHA, BETA, LOG_ERROR)
        clock[T] = t_new
        for i in range(n):
            y[i] = new[i]
        for i in range(n):
            k1[i] = k7[i]
        set_weights(y, atol, rtol, w)
        code = state_code(y, clock)
        if code != RUNNING:
            return code
        if counts[PATIENCE] > 0:
            counts[AGE] += 1
            if limited_by_stability(rhs, p, y, k1, vector, trial, k2, w, clock, counts, STABILITY):
                return _STIFF
    return _DONE
