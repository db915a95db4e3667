"""Rodas5P: Rosenbrock method of order 5(4), L-stable, 8 stages, exact dense Jacobian.

Source: see `rodas_table`. The interpolant is the method's own, of order four: Hermite output fails
in the stiff tail, where slopes carry errors of the size h lambda. One factorisation a step with
partial pivoting, kept by columns so that every inner loop is contiguous; beyond `BLOCKED` unknowns
the inverse is taken by LAPACK instead, which is faster than plain loops.
"""

# Loops are typed by their Numba signatures.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import math

import numpy as np
from numba import njit

from odekit.integrate.compiled.addresses import ROSENBROCK_SIGNATURE, jacobian_at, rhs_at
from odekit.integrate.compiled.combine import subtract
from odekit.integrate.compiled.rodas_table import DENSE_ROWS, GAMMA, NODES, TIME, A, C
from odekit.integrate.compiled.slots import (
    AUTONOMOUS,
    FACTORS,
    H_LAST,
    JACOBIANS,
    LOG_ERROR,
    NONFINITE,
    RECORDED,
    RHS,
    ROW_DENSE,
    ROW_F,
    ROW_FREE,
    ROW_NEW,
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
    EPS,
    RUNNING,
    UNCOUNTED,
    accept_pi,
    check,
    clip,
    copy_into,
    deliver,
    deliver_start,
    first_step,
    largest,
    reject,
    set_weights,
    state_code,
    sum_squares,
    wants_output,
)

ORDER = 5
DENSE = 4
ROWS = ROW_FREE + 11  # the shared rows, u1..u8, trial, f_t, scratch
BLOCKED = 96
ALPHA, BETA = 0.2, 0.0
_DONE, _FULL, _NAN = int(Code.DONE), int(Code.RECORD_FULL), int(Code.NAN)


@njit(**UNCOUNTED)
def factor(m, pivots):
    """LU with partial pivoting in place; m[j, i] is row i of column j. False when singular."""
    n = m.shape[0]
    for k in range(n):
        column = m[k]
        best = k
        for i in range(k + 1, n):
            if abs(column[i]) > abs(column[best]):
                best = i
        pivots[k] = best
        if not abs(column[best]) > 0.0:
            return False
        if best != k:
            for j in range(n):
                x = m[j, k]
                m[j, k] = m[j, best]
                m[j, best] = x
        inverse = 1.0 / column[k]
        for i in range(k + 1, n):
            column[i] *= inverse
        for j in range(k + 1, n):
            other = m[j]
            x = other[k]
            if x != 0.0:
                subtract(other, x, column, k + 1, n)
    return True


@njit(**UNCOUNTED)
def substitute(m, pivots, b):
    """Solve in place with the result of `factor`."""
    n = m.shape[0]
    for k in range(n):
        p = pivots[k]
        if p != k:
            x = b[k]
            b[k] = b[p]
            b[p] = x
    for k in range(n):
        x = b[k]
        if x != 0.0:
            subtract(b, x, m[k], k + 1, n)
    for k in range(n - 1, -1, -1):
        column = m[k]
        x = b[k] / column[k]
        b[k] = x
        subtract(b, x, column, 0, k)


@njit(nogil=True, error_model="numpy")
def _solve(m, pivots, b, s, by_inverse):
    if by_inverse:
        np.dot(m, b, s)
        copy_into(s, b)
    else:
        substitute(m, pivots, b)


@njit(ROSENBROCK_SIGNATURE, cache=True, nogil=True, error_model="numpy")
def advance(
    rhs_address, jac_address, p, y, work, clock, counts, atol, t_out, y_out, rec_t, rec_c, flag
):
    """Step until the end, a full record or trouble; arguments as in `run.Run`."""
    rhs = rhs_at(rhs_address)
    jac = jacobian_at(jac_address)
    n = y.size
    f, w, new = work[ROW_F], work[ROW_WEIGHTS], work[ROW_NEW]
    c = work[ROW_DENSE : ROW_DENSE + DENSE]
    u = work[ROW_FREE : ROW_FREE + 8]
    trial, f_t, s = work[ROW_FREE + 8], work[ROW_FREE + 9], work[ROW_FREE + 10]
    rtol = clock[RTOL]
    counts[RECORDED] = 0
    if counts[STARTED] == 0:
        rhs(clock[T], y, p, f)
        counts[RHS] += 1
        counts[STARTED] = 1
        if not math.isfinite(largest(f)):
            return _NAN
        set_weights(y, atol, rtol, w)
        if clock[H] <= 0.0:
            first_step(rhs, p, y, f, w, trial, u[1], s, clock, counts, ORDER)
        deliver_start(clock[T], y, t_out, y_out, counts)
    # The Jacobian belongs to (t, y) and is taken anew whenever the loop is entered.
    jacobian = np.empty((n, n))
    matrix = np.empty((n, n))
    pivots = np.empty(n, np.int64)
    by_inverse = n > BLOCKED
    known = False
    while clock[T] < clock[T_END]:
        if rec_t.shape[0] > 0 and counts[RECORDED] == rec_t.shape[0]:
            return _FULL
        code = check(y, f, clock, counts, flag)
        if code != RUNNING:
            return code
        t = clock[T]
        h = clip(clock)
        last = h == clock[T_END] - t
        t_new = clock[T_END] if last else t + h
        if not known:
            jac(t, y, p, jacobian)
            counts[JACOBIANS] += 1
            known = True
            if counts[AUTONOMOUS] == 0:
                # f_t by a one-sided difference: enters multiplied by h, so half the digits do.
                dt = math.sqrt(EPS) * max(abs(t), h)
                rhs(t + dt, y, p, f_t)
                counts[RHS] += 1
                for i in range(n):
                    f_t[i] = (f_t[i] - f[i]) / dt
            else:
                for i in range(n):
                    f_t[i] = 0.0
        shift = 1.0 / (h * GAMMA)
        if by_inverse:
            for i in range(n):
                for j in range(n):
                    matrix[i, j] = -jacobian[i, j]
                matrix[i, i] += shift
            sound = math.isfinite(largest(matrix.ravel()))
            if sound:
                inverse = np.linalg.inv(matrix)
                for i in range(n):
                    for j in range(n):
                        matrix[i, j] = inverse[i, j]
        else:
            for i in range(n):
                for j in range(n):
                    matrix[j, i] = -jacobian[i, j]
            for i in range(n):
                matrix[i, i] += shift
            sound = factor(matrix, pivots)
        counts[FACTORS] += 1
        if not sound:
            reject(math.nan, h, clock, counts, 0.2)
            continue
        inverse_h = 1.0 / h
        for stage in range(8):
            row = u[stage]
            if stage == 0:
                for i in range(n):
                    row[i] = f[i]
            else:
                if stage < 6:
                    for i in range(n):
                        trial[i] = y[i]
                    for j in range(stage):
                        subtract(trial, -A[stage, j], u[j], 0, n)
                else:
                    before = u[stage - 1]
                    for i in range(n):
                        trial[i] += before[i]
                rhs(t_new if NODES[stage] == 1.0 else t + NODES[stage] * h, trial, p, row)
                for i in range(n):
                    s[i] = 0.0
                for j in range(stage):
                    subtract(s, -C[stage, j], u[j], 0, n)
                for i in range(n):
                    row[i] += inverse_h * s[i]
            if TIME[stage] != 0.0 and counts[AUTONOMOUS] == 0:
                for i in range(n):
                    row[i] += (h * TIME[stage]) * f_t[i]
            _solve(matrix, pivots, row, s, by_inverse)
        counts[RHS] += 7
        estimate = u[7]
        for i in range(n):
            new[i] = trial[i] + estimate[i]
            s[i] = estimate[i] * w[i]
        err = math.sqrt(sum_squares(s) / n)
        if not err <= 1.0:
            reject(err, h, clock, counts, 0.2)
            continue
        rhs(t_new, new, p, trial)
        counts[RHS] += 1
        if not math.isfinite(sum_squares(trial)):
            reject(math.nan, h, clock, counts, 0.2)
            continue
        counts[STEPS] += 1
        counts[NONFINITE] = 0
        if wants_output(t_new, t_out, rec_t, counts):
            for i in range(n):
                c[0, i] = new[i] - y[i]
                c[1, i] = 0.0
                c[2, i] = 0.0
                c[3, i] = 0.0
            for j in range(8):
                before = u[j]
                for i in range(n):
                    c[1, i] += DENSE_ROWS[0, j] * before[i]
                    c[2, i] += DENSE_ROWS[1, j] * before[i]
                    c[3, i] += DENSE_ROWS[2, j] * before[i]
            deliver(t, h, y, c, t_new, new, t_out, y_out, rec_t, rec_c, counts)
        clock[H_LAST] = h
        accept_pi(err, h, last, clock, counts, ALPHA, BETA, LOG_ERROR)
        clock[T] = t_new
        known = False
        for i in range(n):
            y[i] = new[i]
            f[i] = trial[i]
            w[i] = 1.0 / (atol[i] + rtol * abs(new[i]))
        code = state_code(y, clock)
        if code != RUNNING:
            return code
    return _DONE
