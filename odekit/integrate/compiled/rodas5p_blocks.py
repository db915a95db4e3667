"""Rodas5P on the connected components of a field, each with its own steps, side by side in lanes.

Where the Jacobian's pattern falls apart into components, each is integrated alone: blocks of equal
size lie side by side, lane by lane, and every lane has its own time and step. For a field that
does not depend on t one call of the right-hand side serves all lanes, although each is at another
time. Equations and coefficients as in `rodas5p`.

The blocks are eliminated without pivoting, so that lanes run in step: a decaying block makes
1 / (h gamma) - J positive definite, and a lane whose pivot falls far below 1 / (h gamma) takes a
smaller step instead, which makes its matrix diagonally dominant. Exponents of the step control are
sums of powers of two, so square roots do, which are vectorised. The lane count is a run-time value:
constant lane loops are unrolled and not vectorised.
"""

# Loops are typed by their Numba signatures.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import math

import numpy as np
from numba import boolean, float64, int64, njit

from odekit.integrate.compiled.addresses import jacobian_at, rhs_at
from odekit.integrate.compiled.rodas_table import DENSE_ROWS, GAMMA, A, C
from odekit.integrate.compiled.slots import (
    BLOW_UP,
    FACTORS,
    FILLED,
    H_LAST,
    H_MAX,
    H_MIN,
    JACOBIANS,
    MAX_STEPS,
    REJECTED,
    RHS,
    RTOL,
    STEPS,
    T_END,
    Code,
    H,
    T,
)
from odekit.integrate.compiled.stepping import EPS

ORDER = 5
ROWS = 16
_DONE, _NAN, _BLOW_UP = int(Code.DONE), int(Code.NAN), int(Code.BLOW_UP)
_STEP_LIMIT, _INTERRUPTED, _STALLED = (
    int(Code.STEP_LIMIT),
    int(Code.INTERRUPTED),
    int(Code.STALLED),
)


@njit(nogil=True, error_model="numpy")
def _call(rhs, t, x, p, out, members, full, full_out, identity):
    """F in lane order: x, out (b, L); `members` (b, L) gives each entry's place in the state."""
    if identity:
        rhs(t, x.reshape(x.size), p, out.reshape(out.size))
        return
    for i in range(x.shape[0]):
        for k in range(x.shape[1]):
            full[members[i, k]] = x[i, k]
    rhs(t, full, p, full_out)
    for i in range(x.shape[0]):
        for k in range(x.shape[1]):
            out[i, k] = full_out[members[i, k]]


@njit(nogil=True, error_model="numpy")
def _lane_norms(v, w, out):
    b, lanes = v.shape
    for k in range(lanes):
        out[k] = 0.0
    for i in range(b):
        for k in range(lanes):
            x = v[i, k] * w[i, k]
            out[k] += x * x
    for k in range(lanes):
        out[k] = math.sqrt(out[k] / b)


@njit(nogil=True, error_model="numpy")
def _eliminate(m, least, sound):
    """LU without pivoting in each lane; reciprocal pivots on the diagonal; marks weak lanes."""
    b, _, lanes = m.shape
    for k in range(b):
        for z in range(lanes):
            if not abs(m[k, k, z]) >= least[z]:
                sound[z] = 0.0
            m[k, k, z] = 1.0 / m[k, k, z]
        for i in range(k + 1, b):
            for z in range(lanes):
                m[i, k, z] *= m[k, k, z]
            for j in range(k + 1, b):
                for z in range(lanes):
                    m[i, j, z] -= m[i, k, z] * m[k, j, z]


@njit(nogil=True, error_model="numpy")
def _substitute(m, x):
    b, _, lanes = m.shape
    for i in range(b):
        for k in range(i):
            for z in range(lanes):
                x[i, z] -= m[i, k, z] * x[k, z]
    for i in range(b - 1, -1, -1):
        for k in range(i + 1, b):
            for z in range(lanes):
                x[i, z] -= m[i, k, z] * x[k, z]
        for z in range(lanes):
            x[i, z] *= m[i, i, z]


@njit(nogil=True, error_model="numpy")
def _deliver(z, t, h, y, new, u, t_end_step, members, t_out, y_out, filled):
    """Outputs of one lane inside the step just accepted."""
    b = y.shape[0]
    k0 = filled[z]
    k1 = k0
    while k1 < t_out.size and t_out[k1] <= t_end_step:
        k1 += 1
    filled[z] = k1
    for i in range(b):
        c1 = new[i, z] - y[i, z]
        c2 = 0.0
        c3 = 0.0
        c4 = 0.0
        for j in range(8):
            c2 += DENSE_ROWS[0, j] * u[j, i, z]
            c3 += DENSE_ROWS[1, j] * u[j, i, z]
            c4 += DENSE_ROWS[2, j] * u[j, i, z]
        place = members[i, z]
        for k in range(k0, k1):
            if t_out[k] == t_end_step:
                y_out[k, place] = new[i, z]
            else:
                x = (t_out[k] - t) / h
                v = 1.0 - x
                y_out[k, place] = y[i, z] + x * (c1 + v * (c2 + x * (c3 + v * c4)))


@njit(
    int64(
        int64, int64, int64, boolean, float64[::1], float64[::1],
        int64[:, ::1], int64[:, :, ::1], int64, float64[::1], int64[::1], float64[::1],
        float64[::1], float64[:, ::1], int64[::1],
    ),
    cache=True,
    nogil=True,
    error_model="numpy",
)  # fmt: skip
def advance_blocks(
    rhs_address, values_address, jac_address, by_values, p, y_full, members, entries, nonzeros,
    clock, counts, atol, t_out, y_out, flag,
):  # fmt: skip
    """Integrate the components in `members` (b, L) to the end; the rest of the state stays.

    `values(t, y, p, out)` fills the Jacobian's nonzeros, `entries` (b, b, L) says which of them is
    entry (i, j) of lane z (-1: none); with `by_values` false the dense `jac` is called instead.
    """
    rhs = rhs_at(rhs_address)
    values = rhs_at(values_address)
    jac = jacobian_at(jac_address)
    b, lanes = members.shape
    n = y_full.size
    identity = n == b * lanes
    for i in range(b):
        for z in range(lanes):
            identity = identity and members[i, z] == i * lanes + z
    full = y_full.copy()
    full_out = np.empty(n)
    y, new, f, f_new, w, s, trial = (
        np.empty((b, lanes)), np.empty((b, lanes)), np.empty((b, lanes)), np.empty((b, lanes)),
        np.empty((b, lanes)), np.empty((b, lanes)), np.empty((b, lanes)),
    )  # fmt: skip
    u = np.zeros((8, b, lanes))
    matrix = np.empty((b, b, lanes))
    jacobian = np.zeros((b, b, lanes))
    nonzero = np.empty(nonzeros)
    dense = np.empty((1, 1)) if by_values else np.empty((n, n))
    absolute = np.empty((b, lanes))
    t, h, take, err, shift, inverse_h, least, sound, grow, power = (
        np.empty(lanes), np.empty(lanes), np.empty(lanes), np.empty(lanes), np.empty(lanes),
        np.empty(lanes), np.empty(lanes), np.empty(lanes), np.ones(lanes), np.empty(lanes),
    )  # fmt: skip
    t_next = np.empty(lanes)
    accepted = np.empty(lanes)
    filled = np.zeros(lanes, np.int64)
    rtol, t_end, h_max = clock[RTOL], clock[T_END], clock[H_MAX]
    for i in range(b):
        for z in range(lanes):
            y[i, z] = y_full[members[i, z]]
            absolute[i, z] = atol[members[i, z]]
            w[i, z] = 1.0 / (absolute[i, z] + rtol * abs(y[i, z]))
    _call(rhs, clock[T], y, p, f, members, full, full_out, identity)
    counts[RHS] += 1
    for i in range(b):
        for z in range(lanes):
            if not math.isfinite(f[i, z]):
                return _NAN
    # First step of every lane: Hairer, Norsett, Wanner I, II.4, as in `stepping.first_step`.
    span = t_end - clock[T]
    _lane_norms(y, w, err)
    _lane_norms(f, w, take)
    for z in range(lanes):
        t[z] = clock[T]
        h[z] = 1e-6 * span
        if take[z] > 0.0:
            h[z] = 0.01 * (err[z] if err[z] > 0.0 else 1.0) / take[z]
        h[z] = min(h[z], span)
    for i in range(b):
        for z in range(lanes):
            trial[i, z] = y[i, z] + h[z] * f[i, z]
    _call(rhs, clock[T], trial, p, f_new, members, full, full_out, identity)
    counts[RHS] += 1
    for i in range(b):
        for z in range(lanes):
            s[i, z] = f_new[i, z] - f[i, z]
    _lane_norms(s, w, err)
    for z in range(lanes):
        d = max(err[z] / h[z], take[z])
        if not math.isfinite(d):
            h[z] *= 1e-3
        elif d * span <= 1e-15:
            h[z] = span
        elif err[z] > 0.0:
            h[z] = min(100.0 * h[z], (0.01 / d) ** (1.0 / (ORDER + 1.0)))
        else:
            h[z] = 100.0 * h[z]
        if clock[H] > 0.0:
            h[z] = clock[H]
        h[z] = min(h[z], h_max, span)
        filled[z] = counts[FILLED]
        while filled[z] < t_out.size and t_out[filled[z]] <= t[z]:
            for i in range(b):
                y_out[filled[z], members[i, z]] = y[i, z]
            filled[z] += 1
    running = lanes
    rounds = 0
    while running > 0:
        if flag[0] != 0:
            return _INTERRUPTED
        if rounds >= counts[MAX_STEPS]:
            return _STEP_LIMIT
        rounds += 1
        if by_values:
            for i in range(b):
                for z in range(lanes):
                    full[members[i, z]] = y[i, z]
            values(clock[T], full, p, nonzero)
            for i in range(b):
                for j in range(b):
                    for z in range(lanes):
                        e = entries[i, j, z]
                        jacobian[i, j, z] = nonzero[e] if e >= 0 else 0.0
        else:
            for i in range(b):
                for z in range(lanes):
                    full[members[i, z]] = y[i, z]
            jac(clock[T], full, p, dense)
            for i in range(b):
                for j in range(b):
                    for z in range(lanes):
                        jacobian[i, j, z] = dense[members[i, z], members[j, z]]
        counts[JACOBIANS] += 1
        for z in range(lanes):
            left = t_end - t[z]
            take[z] = left if h[z] * 1.0000001 >= left else h[z]
            t_next[z] = t_end if take[z] == left else t[z] + take[z]
            # A finished lane goes through the motions with a harmless step.
            step = take[z] if left > 0.0 else 1.0
            inverse_h[z] = 1.0 / step
            shift[z] = inverse_h[z] / GAMMA
            least[z] = 1e-3 * shift[z]
            sound[z] = 1.0
        for i in range(b):
            for j in range(b):
                for z in range(lanes):
                    matrix[i, j, z] = -jacobian[i, j, z]
            for z in range(lanes):
                matrix[i, i, z] += shift[z]
        _eliminate(matrix, least, sound)
        counts[FACTORS] += 1
        for stage in range(8):
            row = u[stage]
            if stage == 0:
                for i in range(b):
                    for z in range(lanes):
                        row[i, z] = f[i, z]
            else:
                a0, a1, a2, a3, a4 = (
                    A[stage, 0], A[stage, 1], A[stage, 2], A[stage, 3], A[stage, 4],
                )  # fmt: skip
                if stage < 6:
                    for i in range(b):
                        for z in range(lanes):
                            trial[i, z] = y[i, z] + (
                                a0 * u[0, i, z] + a1 * u[1, i, z] + a2 * u[2, i, z]
                                + a3 * u[3, i, z] + a4 * u[4, i, z]
                            )  # fmt: skip
                else:
                    for i in range(b):
                        for z in range(lanes):
                            trial[i, z] += u[stage - 1, i, z]
                _call(rhs, clock[T], trial, p, row, members, full, full_out, identity)
                c0, c1, c2, c3, c4, c5, c6 = (
                    C[stage, 0], C[stage, 1], C[stage, 2], C[stage, 3], C[stage, 4], C[stage, 5],
                    C[stage, 6],
                )  # fmt: skip
                for i in range(b):
                    for z in range(lanes):
                        s[i, z] = (
                            c0 * u[0, i, z] + c1 * u[1, i, z] + c2 * u[2, i, z] + c3 * u[3, i, z]
                        )
                if stage > 4:
                    for i in range(b):
                        for z in range(lanes):
                            s[i, z] += c4 * u[4, i, z] + c5 * u[5, i, z] + c6 * u[6, i, z]
                for i in range(b):
                    for z in range(lanes):
                        row[i, z] += inverse_h[z] * s[i, z]
            _substitute(matrix, row)
            if stage < 7:
                # Later stages read rows not yet computed with coefficient zero: keep them finite.
                u[stage + 1, :, :] = 0.0
        for i in range(b):
            for z in range(lanes):
                new[i, z] = trial[i, z] + u[7, i, z]
        _lane_norms(u[7], w, err)
        _call(rhs, clock[T], new, p, f_new, members, full, full_out, identity)
        counts[RHS] += 8
        # Not finite slopes reject the step as a not finite state does.
        for i in range(b):
            for z in range(lanes):
                err[z] += 0.0 * (f_new[i, z] - f_new[i, z])
        for z in range(lanes):
            e = err[z] if (err[z] < 1e30 and sound[z] > 0.0) else 1e30
            e = max(e, 1e-12)
            x = math.sqrt(math.sqrt(math.sqrt(e)))
            power[z] = 1.0 / (x * math.sqrt(x))
            err[z] = e
        rejected = 0
        for z in range(lanes):
            open_ = t[z] < t_end
            good = open_ and err[z] <= 1.0
            accepted[z] = 1.0 if good else 0.0
            factor = min(6.0, max(0.1, 0.9 * power[z]))
            factor = min(factor, grow[z]) if good else factor
            proposal = min(take[z] * factor, h_max)
            cut = take[z] < h[z] and good
            h[z] = max(h[z], proposal) if cut else (proposal if open_ else h[z])
            grow[z] = 6.0 if good else 1.0
            rejected += 1 if (open_ and not good) else 0
        counts[REJECTED] += rejected
        for z in range(lanes):
            if accepted[z] > 0.0 and filled[z] < t_out.size and t_out[filled[z]] <= t_next[z]:
                _deliver(z, t[z], take[z], y, new, u, t_next[z], members, t_out, y_out, filled)
        for i in range(b):
            for z in range(lanes):
                good = accepted[z] > 0.0
                y[i, z] = new[i, z] if good else y[i, z]
                f[i, z] = f_new[i, z] if good else f[i, z]
                w[i, z] = 1.0 / (absolute[i, z] + rtol * abs(y[i, z]))
        running = 0
        for z in range(lanes):
            if accepted[z] > 0.0:
                t[z] = t_next[z]
                clock[H_LAST] = take[z]
            running += 1 if t[z] < t_end else 0
        if rejected > 0 or rounds % 16 == 0:
            for z in range(lanes):
                if t[z] < t_end:
                    size = 0.0
                    rate = 0.0
                    for i in range(b):
                        size = max(size, abs(y[i, z]))
                        rate = max(rate, abs(f[i, z]))
                    if size > clock[BLOW_UP]:
                        return _BLOW_UP
                    if h[z] < 16.0 * EPS * abs(t[z]) + clock[H_MIN]:
                        if rate * (1e6 * EPS * abs(t[z])) > size and size > 0.0:
                            return _BLOW_UP
                        return _NAN if err[z] >= 1e30 else _STALLED
        counts[STEPS] = rounds
    for i in range(b):
        for z in range(lanes):
            y_full[members[i, z]] = y[i, z]
    counts[FILLED] = filled.min()
    return _DONE
