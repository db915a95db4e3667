"""Parts that all compiled loops share: norms, first step, dense output, step-size control.

Every operation is written in one fixed order (no `fastmath`): a run gives the same bits alone,
recorded step by step, or as a lane of an ensemble. Nothing here allocates, so arrays' references
are not counted (`_nrt=False`): that takes a tenth of a small step, and a fifth of the compilation.
"""

# Loops are typed by their Numba signatures.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import math
from typing import Any

from numba import njit

from odekit.integrate.compiled.slots import (
    AGE,
    BLOW_UP,
    FAILED,
    FILLED,
    H_MAX,
    H_MIN,
    LOOK_AFTER,
    LOOKS,
    MAX_STEPS,
    NONFINITE,
    PATIENCE,
    RADIUS,
    RECORDED,
    REJECTED,
    RHS,
    STEPS,
    STREAK,
    T_END,
    Code,
    H,
    T,
)

UNCOUNTED: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}
"""How loops that allocate nothing are compiled."""

EPS = 2.220446049250313e-16

_NAN = int(Code.NAN)
_BLOW_UP = int(Code.BLOW_UP)
_STEP_LIMIT = int(Code.STEP_LIMIT)
_INTERRUPTED = int(Code.INTERRUPTED)
_STALLED = int(Code.STALLED)
RUNNING = -1


@njit(**UNCOUNTED)
def sum_squares(s):
    """Sum of s_i^2 with four partial sums, the order that ensemble lanes repeat."""
    a = 0.0
    b = 0.0
    c = 0.0
    d = 0.0
    n = s.size
    m = n - n % 4
    for i in range(0, m, 4):
        a += s[i] * s[i]
        b += s[i + 1] * s[i + 1]
        c += s[i + 2] * s[i + 2]
        d += s[i + 3] * s[i + 3]
    for i in range(m, n):
        a += s[i] * s[i]
    return (a + b) + (c + d)


@njit(**UNCOUNTED)
def largest(y):
    """Largest |y_i|; NaN when any entry is."""
    best = 0.0
    for i in range(y.size):
        a = abs(y[i])
        if not a <= best:
            best = a
            if math.isnan(a):
                break
    return best


@njit(**UNCOUNTED)
def copy_into(values, out):
    """``out[:] = values``, which would make room for a copy in case the two overlap."""
    for i in range(out.size):
        out[i] = values[i]


@njit(**UNCOUNTED)
def set_weights(y, atol, rtol, w):
    """Error weights 1 / (atol_i + rtol |y_i|) at the state that a step starts from."""
    for i in range(y.size):
        w[i] = 1.0 / (atol[i] + rtol * abs(y[i]))


@njit(**UNCOUNTED)
def weighted_norm(v, w, s):
    """Root mean square of v_i w_i; `s` is scratch."""
    for i in range(v.size):
        s[i] = v[i] * w[i]
    return math.sqrt(sum_squares(s) / v.size)


@njit(**UNCOUNTED)
def first_step(rhs, p, y, f, w, trial, f_trial, s, clock, counts, order):
    """Initial step of Hairer, Norsett, Wanner I, II.4, on the span's own scale.

    Their fallback 1e-6 for vanishing norms assumes times of order one; here it is 1e-6 of the
    span, so a start at 1e-10 on a plateau of length 1e12 is not held back.
    """
    span = clock[T_END] - clock[T]
    d0 = weighted_norm(y, w, s)
    d1 = weighted_norm(f, w, s)
    h = 1e-6 * span
    if d0 > 0.0 and d1 > 0.0:
        h = 0.01 * d0 / d1
    elif d1 > 0.0:
        h = 0.01 / d1
    h = min(h, span)
    for i in range(y.size):
        trial[i] = y[i] + h * f[i]
    rhs(clock[T] + h, trial, p, f_trial)
    counts[RHS] += 1
    for i in range(y.size):
        trial[i] = f_trial[i] - f[i]
    d2 = weighted_norm(trial, w, s) / h
    d = max(d1, d2)
    if math.isnan(d) or d == math.inf:
        h_next = 1e-3 * h
    elif d * span <= 1e-15:
        h_next = span
    else:
        h_next = min(100.0 * h, (0.01 / d) ** (1.0 / (order + 1.0)) if d2 > 0.0 else 100.0 * h)
    clock[H] = min(h_next, clock[H_MAX], span)


@njit(**UNCOUNTED)
def evaluate(y0, c, theta, out):
    """Dense output y0 + th (c1 + (1-th) (c2 + th (c3 + (1-th) (c4 + ...)))), four or seven rows.

    The nested form of Hairer's `contd8`; every method here stores its interpolant in it.
    """
    m = c.shape[0]
    back = 1.0 - theta
    if m == 7:
        for i in range(out.size):
            out[i] = c[3, i] + theta * (c[4, i] + back * (c[5, i] + theta * c[6, i]))
        for i in range(out.size):
            out[i] = c[0, i] + back * (c[1, i] + theta * (c[2, i] + back * out[i]))
    else:
        for i in range(out.size):
            out[i] = c[0, i] + back * (c[1, i] + theta * (c[2, i] + back * c[3, i]))
    for i in range(out.size):
        out[i] = y0[i] + theta * out[i]


@njit(**UNCOUNTED)
def wants_output(t_new, t_out, rec_t, counts):
    """Whether the step that ends at t_new must be interpolated and delivered."""
    k = counts[FILLED]
    return rec_t.shape[0] > 0 or (k < t_out.size and t_out[k] <= t_new)


@njit(**UNCOUNTED)
def deliver(t0, h, y0, c, t_new, y_new, t_out, y_out, rec_t, rec_c, counts):
    """Write the outputs of an accepted step: requested times, and the record if there is one.

    Requested times equal to t_new are left to the next step or to `finish`, which copy the state
    itself, so an output at a step's end carries no rounding of the interpolant.
    """
    k = counts[FILLED]
    while k < t_out.size and t_out[k] < t_new:
        evaluate(y0, c, (t_out[k] - t0) / h, y_out[k])
        k += 1
    while k < t_out.size and t_out[k] == t_new:
        copy_into(y_new, y_out[k])
        k += 1
    counts[FILLED] = k
    if rec_t.shape[0] > 0:
        r = counts[RECORDED]
        rec_t[r, 0] = t0
        rec_t[r, 1] = h
        copy_into(y0, rec_c[r, 0])
        for j in range(c.shape[0]):
            copy_into(c[j], rec_c[r, j + 1])
        for j in range(c.shape[0] + 1, rec_c.shape[1]):
            for i in range(y0.size):
                rec_c[r, j, i] = 0.0
        counts[RECORDED] = r + 1


@njit(**UNCOUNTED)
def deliver_start(t, y, t_out, y_out, counts):
    """Outputs requested at (or, by a rounding, before) the start."""
    k = counts[FILLED]
    while k < t_out.size and t_out[k] <= t:
        copy_into(y, y_out[k])
        k += 1
    counts[FILLED] = k


@njit(**UNCOUNTED)
def check(y, f, clock, counts, flag):
    """Look before a step: interruption, limits, underflow. RUNNING when all is well."""
    if flag[0] != 0:
        return _INTERRUPTED
    if counts[STEPS] + counts[REJECTED] >= counts[MAX_STEPS]:
        return _STEP_LIMIT
    t = clock[T]
    if clock[H] < 16.0 * EPS * abs(t) + clock[H_MIN] and clock[T_END] - t > clock[H]:
        if counts[NONFINITE] != 0:
            # A finite-time blow-up may overflow in its trials: tell it by its rate.
            size = largest(y)
            rate = largest(f)
            if rate * (1e6 * EPS * abs(t)) > size and size > 0.0:
                return _BLOW_UP
            return _NAN
        size = largest(y)
        rate = largest(f)
        # The state would double within a few roundings of t: a pole of the solution.
        if rate * (1e4 * EPS * abs(t)) > size:
            return _BLOW_UP
        return _STALLED
    return RUNNING


@njit(**UNCOUNTED)
def clip(clock):
    """Step to take now: the proposed one, or what is left when the end is that near."""
    left = clock[T_END] - clock[T]
    return left if clock[H] * 1.0000001 >= left else clock[H]


@njit(**UNCOUNTED)
def state_code(y_new, clock):
    """RUNNING, or BLOW_UP when an accepted state passes the limit."""
    # The sum of squares bounds the largest entry and costs a vectorised pass only.
    if sum_squares(y_new) > clock[BLOW_UP] * clock[BLOW_UP] and largest(y_new) > clock[BLOW_UP]:
        return _BLOW_UP
    return RUNNING


@njit(**UNCOUNTED)
def reject(err, h, clock, counts, exponent):
    """Shrink the step after a failed trial (not finite, or error norm above one)."""
    counts[REJECTED] += 1
    counts[FAILED] += 1
    if math.isfinite(err):
        counts[NONFINITE] = 0
        clock[H] = h * max(0.2, 0.9 * err ** (-exponent))
    else:
        counts[NONFINITE] = 1
        clock[H] = h * 0.1


@njit(**UNCOUNTED)
def accept_pi(err, h, clipped, clock, counts, alpha, beta, log_error_slot):
    """Next step after success: PI control (Gustafsson 1991; Hairer, Wanner II, IV.2)."""
    log_err = math.log(max(err, 1e-10))
    factor = 0.9 * math.exp(-alpha * log_err + beta * clock[log_error_slot])
    factor = min(5.0, max(0.2, factor))
    if counts[FAILED] > 0:
        factor = min(1.0, factor)
    clock[log_error_slot] = max(log_err, -9.2)
    counts[FAILED] = 0
    proposal = min(h * factor, clock[H_MAX])
    # A step cut short by the end says nothing against the step that was planned.
    clock[H] = max(clock[H], proposal) if clipped else proposal


@njit(**UNCOUNTED)
def estimate_radius(rhs, p, t, y, f0, vector, point, f, w, counts, iterations):
    """Spectral radius by power iteration on differences of f; `vector` is kept between calls.

    Sommeijer, Shampine, Verwer, J. Comput. Appl. Math. 88 (1998) 315, section 4.2. Works in the
    weighted norm, in which all components count alike. Returns 0 for f constant.
    """
    n = y.size
    norm = 0.0
    for i in range(n):
        norm += (vector[i] * w[i]) ** 2
    if norm == 0.0:
        # Start from f, roughened: f itself may be an invariant direction of small rate.
        for i in range(n):
            vector[i] = (1.0 + 0.3 * math.sin(1.0 + 1.7 * i)) / w[i]
            norm += (vector[i] * w[i]) ** 2
    size = 0.0
    for i in range(n):
        size += (y[i] * w[i]) ** 2
    # Difference step: square root of rounding relative to the state, at least tolerance-sized.
    delta = 1.5e-8 * max(math.sqrt(size), math.sqrt(float(n)))
    radius = 0.0
    for iteration in range(iterations):
        scale = delta / math.sqrt(norm)
        for i in range(n):
            point[i] = y[i] + scale * vector[i]
        rhs(t, point, p, f)
        counts[RHS] += 1
        norm = 0.0
        for i in range(n):
            vector[i] = f[i] - f0[i]
            norm += (vector[i] * w[i]) ** 2
        before = radius
        radius = math.sqrt(norm) / delta
        if norm == 0.0 or not math.isfinite(radius):
            for i in range(n):
                vector[i] = 0.0
            return 0.0
        if iteration > 0 and abs(radius - before) <= 0.03 * radius:
            break
    return radius


# Accepted steps between looks at the spectral radius: doubled while it is far from the limit.
LOOK_EVERY, LOOK_SELDOM = 12, 48


@njit(**UNCOUNTED)
def limited_by_stability(rhs, p, y, f, vector, point, slope, w, clock, counts, stability):
    """Whether stability has been limiting a plain method's steps, with many more to come.

    Two more rounds of a power iteration that goes on through the run, every 12 to 48 steps.
    Hairer's ratio |k7 - k6| / |g7 - g6| (Solving ODEs II, IV.2) is cheaper, but on a plateau it
    was seen to miss the stiff direction by a factor of 100.
    """
    if counts[AGE] < max(counts[LOOK_AFTER], LOOK_EVERY):
        return False
    counts[AGE] = 0
    clock[RADIUS] = 1.1 * estimate_radius(
        rhs, p, clock[T], y, f, vector, point, slope, w, counts, 2
    )
    share = clock[RADIUS] * clock[H] / stability
    counts[STREAK] = counts[STREAK] + 1 if share > 0.75 else 0
    calm = share < 0.4
    counts[LOOK_AFTER] = min(2 * max(counts[LOOK_AFTER], LOOK_EVERY), LOOK_SELDOM) if calm else 0
    left = clock[T_END] - clock[T]
    if counts[STREAK] >= counts[LOOKS] and left > clock[H] * counts[PATIENCE]:
        counts[STREAK] = 0
        return True
    return False
