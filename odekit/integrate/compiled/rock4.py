"""ROCK4: stabilised explicit method of order 4(3) for fields with a real negative spectrum.

With s stages (5 to 94) the stability interval is about 0.35 s^2 long, so a step of any length is
paid with the square root of h times the spectral radius. Method: A. Abdulle, SIAM J. Sci. Comput.
23 (2002) 2041; coefficients derived by `derive_rock`. The spectral radius comes from a nonlinear
power iteration (Sommeijer, Shampine, Verwer, J. Comput. Appl. Math. 88 (1998) 315, section 4.2),
which is exact in the limit where the Jacobian is symmetric, as in a gradient flow. Dense output:
cubic Hermite, of the error estimate's order (see `derive_rock`).
"""

# Loops are typed by their Numba signatures.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import math

import numpy as np
from numba import njit

from odekit.integrate.compiled.addresses import TABLE_SIGNATURE, rhs_at
from odekit.integrate.compiled.combine import combine
from odekit.integrate.compiled.rock_table import TABLE
from odekit.integrate.compiled.slots import (
    AGE,
    CALM,
    FAILED,
    H_LAST,
    LOG_ERROR,
    NONFINITE,
    PATIENCE,
    RADIUS,
    RECORDED,
    RENEW,
    RHS,
    ROW_DENSE,
    ROW_F,
    ROW_FREE,
    ROW_NEW,
    ROW_VECTOR,
    ROW_WEIGHTS,
    RTOL,
    STABILISED,
    STAGES,
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
    estimate_radius,
    first_step,
    largest,
    reject,
    set_weights,
    state_code,
    sum_squares,
    wants_output,
)

ORDER = 4
DENSE = 4  # the cubic's coefficients and a zero, so that records fit those of Tsit5
F1, K1, K2, K3, K4, TRIAL, S = range(ROW_FREE, ROW_FREE + 7)
ROWS = ROW_FREE + 7
ALPHA, BETA = 0.7 / 4.0, 0.4 / 4.0
LAST = 15  # a21, a31, a32, a41, a42, a43, b1..b4, d1..d5
PLAIN_STAGES, PLAIN_STABILITY = 6.0, 3.4  # of Tsit5
CALM_STEPS = 6
_DONE, _FULL, _NAN = int(Code.DONE), int(Code.RECORD_FULL), int(Code.NAN)
_RELAXED = int(Code.RELAXED)


def pack_table() -> np.ndarray:
    """Table as one array (methods, 2 + LAST + 3 * longest): s, ell, last, then mu, kappa, c."""
    longest = max(TABLE)
    packed = np.zeros((len(TABLE), 2 + LAST + 3 * longest))
    for row, (s, (ell, mu, kappa, c, last)) in zip(packed, sorted(TABLE.items()), strict=True):
        row[0], row[1] = s, ell
        row[2 : 2 + LAST] = last
        for k, values in enumerate((mu, kappa, c)):
            start = 2 + LAST + k * longest
            row[start : start + len(values)] = values
    return packed


@njit(TABLE_SIGNATURE, cache=True, **UNCOUNTED)
def advance(rhs_address, table, p, y, work, clock, counts, atol, t_out, y_out, rec_t, rec_c, flag):
    """Step until the end, a full record or trouble; arguments as in `run.Run`."""
    rhs = rhs_at(rhs_address)
    n = y.size
    longest = (table.shape[1] - 2 - LAST) // 3
    f0, w, new = work[ROW_F], work[ROW_WEIGHTS], work[ROW_NEW]
    c, vector = work[ROW_DENSE : ROW_DENSE + DENSE], work[ROW_VECTOR]
    f1, k1, k2, k3, k4 = work[F1], work[K1], work[K2], work[K3], work[K4]
    trial, s = work[TRIAL], work[S]
    rtol = clock[RTOL]
    counts[RECORDED] = 0
    if counts[STARTED] == 0:
        rhs(clock[T], y, p, f0)
        counts[RHS] += 1
        counts[STARTED] = 1
        counts[AGE] = RENEW
        if not math.isfinite(largest(f0)):
            return _NAN
        set_weights(y, atol, rtol, w)
        if clock[H] <= 0.0:
            first_step(rhs, p, y, f0, w, trial, k2, s, clock, counts, ORDER)
        deliver_start(clock[T], y, t_out, y_out, counts)
    while clock[T] < clock[T_END]:
        if rec_t.shape[0] > 0 and counts[RECORDED] == rec_t.shape[0]:
            return _FULL
        code = check(y, f0, clock, counts, flag)
        if code != RUNNING:
            return code
        t = clock[T]
        if counts[AGE] >= RENEW or (counts[FAILED] > 0 and counts[AGE] > 0):
            clock[RADIUS] = 1.1 * estimate_radius(
                rhs, p, t, y, f0, vector, trial, k2, w, counts, 50
            )
            counts[AGE] = 0
        reach = table[table.shape[0] - 1, 1] / max(clock[RADIUS], 1e-300)
        if clock[H] > reach:
            clock[H] = reach
        h = clip(clock)
        last = h == clock[T_END] - t
        row = 0
        while row < table.shape[0] - 1 and table[row, 1] < h * clock[RADIUS]:
            row += 1
        stages = int(table[row, 0])
        counts[STAGES] = max(counts[STAGES], stages)
        t_new = clock[T_END] if last else t + h
        # Inner stages: k3 and trial hold g_{j-1} and g_j in turn. Written out in pairs, and the
        # table read by index: swapping or slicing arrays counts references, slow at this size.
        m = stages - 4
        mu, kappa, node = 2 + LAST, 2 + LAST + longest, 2 + LAST + 2 * longest
        first = h * table[row, mu]
        for i in range(n):
            k3[i] = y[i]
            trial[i] = y[i] + first * f0[i]
        j = 1
        if m % 2 == 0:
            rhs(t + table[row, node + 1] * h, trial, p, k1)
            step, back = h * table[row, mu + 1], table[row, kappa + 1]
            ahead = 1.0 + back
            for i in range(n):
                x = trial[i]
                trial[i] = step * k1[i] + ahead * x - back * k3[i]
                k3[i] = x
            j = 2
        while j < m:
            rhs(t + table[row, node + j] * h, trial, p, k1)
            step, back = h * table[row, mu + j], table[row, kappa + j]
            ahead = 1.0 + back
            combine(work, K3, None, (ahead, -back, step), (TRIAL, K3, K1))
            rhs(t + table[row, node + j + 1] * h, k3, p, k1)
            step, back = h * table[row, mu + j + 1], table[row, kappa + j + 1]
            ahead = 1.0 + back
            combine(work, TRIAL, None, (ahead, -back, step), (K3, TRIAL, K1))
            j += 2
        g, start = trial, table[row, node + m]
        a21, a31, a32 = table[row, 2], table[row, 3], table[row, 4]
        a41, a42, a43 = table[row, 5], table[row, 6], table[row, 7]
        b1, b2, b3, b4 = table[row, 8], table[row, 9], table[row, 10], table[row, 11]
        d1, d2, d3 = table[row, 12], table[row, 13], table[row, 14]
        d4, d5 = table[row, 15], table[row, 16]
        rhs(t + start * h, g, p, k1)
        combine(work, S, g, (h * a21,), (K1,))
        rhs(t + (start + a21) * h, s, p, k2)
        combine(work, S, g, (h * a31, h * a32), (K1, K2))
        rhs(t + (start + a31 + a32) * h, s, p, k3)
        combine(work, S, g, (h * a41, h * a42, h * a43), (K1, K2, K3))
        rhs(t + (start + a41 + a42 + a43) * h, s, p, k4)
        combine(work, ROW_NEW, g, (h * b1, h * b2, h * b3, h * b4), (K1, K2, K3, K4))
        rhs(t_new, new, p, f1)
        counts[RHS] += stages
        combine(work, S, None, (h * d1, h * d2, h * d3, h * d4, h * d5), (K1, K2, K3, K4, F1))
        for i in range(n):
            s[i] = w[i] * s[i]
        err = math.sqrt(sum_squares(s) / n)
        if not err <= 1.0:
            reject(err, h, clock, counts, 0.25)
            continue
        counts[STEPS] += 1
        counts[STABILISED] += 1
        counts[AGE] += 1
        counts[NONFINITE] = 0
        if wants_output(t_new, t_out, rec_t, counts):
            for i in range(n):
                c[0, i] = new[i] - y[i]
            for i in range(n):
                c[1, i] = h * f0[i] - c[0, i]
            for i in range(n):
                c[2, i] = 2.0 * c[0, i] - h * (f0[i] + f1[i])
            for i in range(n):
                c[3, i] = 0.0
            deliver(t, h, y, c, t_new, new, t_out, y_out, rec_t, rec_c, counts)
        clock[H_LAST] = h
        accept_pi(err, h, last, clock, counts, ALPHA, BETA, LOG_ERROR)
        clock[T] = t_new
        for i in range(n):
            y[i] = new[i]
        for i in range(n):
            f0[i] = f1[i]
        set_weights(y, atol, rtol, w)
        code = state_code(y, clock)
        if code != RUNNING:
            return code
        if counts[PATIENCE] > 0:
            # Stages per unit time against those of Tsit5 at its stability limit.
            if stages * PLAIN_STABILITY > PLAIN_STAGES * clock[RADIUS] * h:
                counts[CALM] += 1
            else:
                counts[CALM] = 0
            if counts[CALM] >= CALM_STEPS:
                counts[CALM] = 0
                return _RELAXED
    return _DONE
