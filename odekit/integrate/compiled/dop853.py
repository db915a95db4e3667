"""DOP853: explicit Runge-Kutta of order 8(5,3), 12 stages, dense output of order seven.

Source: E. Hairer, S. P. Norsett, G. Wanner, "Solving Ordinary Differential Equations I: Nonstiff
Problems", second edition, Springer 1993, sections II.5 and II.10 (pair by Dormand and Prince with
two embedded estimates; interpolant with three more stages, computed only in steps that are
interpolated). The numbers are those of the authors' published code (BSD licence).
"""

# Loops are typed by their Numba signatures.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import math

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

ORDER = 8
DENSE = 7
K1 = ROW_F
K2, K3, K4, K5, K6, K7, K8, K9 = range(ROW_FREE, ROW_FREE + 8)
K10, K11, K12, K13, K14, K15, K16, TRIAL, S = range(ROW_FREE + 8, ROW_FREE + 17)
STABILITY = 6.1  # length of the negative real stability interval
ROWS = ROW_FREE + 17  # the shared rows, k2..k16, trial, scratch
ALPHA, BETA = 0.7 / 8.0, 0.4 / 8.0
_DONE, _FULL, _NAN, _STIFF = int(Code.DONE), int(Code.RECORD_FULL), int(Code.NAN), int(Code.STIFF)

# stage 2 at c = 0.05260015195876773
A2_1 = 0.05260015195876773
# stage 3 at c = 0.0789002279381516
A3_1 = 0.0197250569845379
A3_2 = 0.0591751709536137
# stage 4 at c = 0.1183503419072274
A4_1 = 0.02958758547680685
A4_3 = 0.08876275643042054
# stage 5 at c = 0.2816496580927726
A5_1 = 0.2413651341592667
A5_3 = -0.8845494793282861
A5_4 = 0.924834003261792
# stage 6 at c = 0.3333333333333333
A6_1 = 0.037037037037037035
A6_4 = 0.17082860872947386
A6_5 = 0.12546768756682242
# stage 7 at c = 0.25
A7_1 = 0.037109375
A7_4 = 0.17025221101954405
A7_5 = 0.06021653898045596
A7_6 = -0.017578125
# stage 8 at c = 0.3076923076923077
A8_1 = 0.03709200011850479
A8_4 = 0.17038392571223998
A8_5 = 0.10726203044637328
A8_6 = -0.015319437748624402
A8_7 = 0.008273789163814023
# stage 9 at c = 0.6512820512820513
A9_1 = 0.6241109587160757
A9_4 = -3.3608926294469414
A9_5 = -0.868219346841726
A9_6 = 27.59209969944671
A9_7 = 20.154067550477894
A9_8 = -43.48988418106996
# stage 10 at c = 0.6
A10_1 = 0.47766253643826434
A10_4 = -2.4881146199716677
A10_5 = -0.590290826836843
A10_6 = 21.230051448181193
A10_7 = 15.279233632882423
A10_8 = -33.28821096898486
A10_9 = -0.020331201708508627
# stage 11 at c = 0.8571428571428571
A11_1 = -0.9371424300859873
A11_4 = 5.186372428844064
A11_5 = 1.0914373489967295
A11_6 = -8.149787010746927
A11_7 = -18.52006565999696
A11_8 = 22.739487099350505
A11_9 = 2.4936055526796523
A11_10 = -3.0467644718982196
# stage 12 at c = 1.0
A12_1 = 2.273310147516538
A12_4 = -10.53449546673725
A12_5 = -2.0008720582248625
A12_6 = -17.9589318631188
A12_7 = 27.94888452941996
A12_8 = -2.8589982771350235
A12_9 = -8.87285693353063
A12_10 = 12.360567175794303
A12_11 = 0.6433927460157636
# weights of order eight
B1 = 0.054293734116568765
B6 = 4.450312892752409
B7 = 1.8915178993145003
B8 = -5.801203960010585
B9 = 0.3111643669578199
B10 = -0.1521609496625161
B11 = 0.20136540080403034
B12 = 0.04471061572777259
# error estimates of order five and three
E5_1 = 0.01312004499419488
E5_6 = -1.2251564463762044
E5_7 = -0.4957589496572502
E5_8 = 1.6643771824549864
E5_9 = -0.35032884874997366
E5_10 = 0.3341791187130175
E5_11 = 0.08192320648511571
E5_12 = -0.022355307863886294
E3_1 = -0.18980075407240762
E3_6 = 4.450312892752409
E3_7 = 1.8915178993145003
E3_8 = -5.801203960010585
E3_9 = -0.4226823213237919
E3_10 = -0.1521609496625161
E3_11 = 0.20136540080403034
E3_12 = 0.02265179219836082
# three more stages for the interpolant, at c = 0.1, 0.2, 7/9; k13 = f(y_new)
A14_1 = 0.056167502283047954
A14_7 = 0.25350021021662483
A14_8 = -0.2462390374708025
A14_9 = -0.12419142326381637
A14_10 = 0.15329179827876568
A14_11 = 0.00820105229563469
A14_12 = 0.007567897660545699
A14_13 = -0.008298
A15_1 = 0.03183464816350214
A15_6 = 0.028300909672366776
A15_7 = 0.053541988307438566
A15_8 = -0.05492374857139099
A15_11 = -0.00010834732869724932
A15_12 = 0.0003825710908356584
A15_13 = -0.00034046500868740456
A15_14 = 0.1413124436746325
A16_1 = -0.42889630158379194
A16_6 = -4.697621415361164
A16_7 = 7.683421196062599
A16_8 = 4.06898981839711
A16_9 = 0.3567271874552811
A16_13 = -0.0013990241651590145
A16_14 = 2.9475147891527724
A16_15 = -9.15095847217987
D4_1 = -8.428938276109013
D4_6 = 0.5667149535193777
D4_7 = -3.0689499459498917
D4_8 = 2.38466765651207
D4_9 = 2.117034582445028
D4_10 = -0.871391583777973
D4_11 = 2.2404374302607883
D4_12 = 0.6315787787694688
D4_13 = -0.08899033645133331
D4_14 = 18.148505520854727
D4_15 = -9.194632392478356
D4_16 = -4.436036387594894
D5_1 = 10.427508642579134
D5_6 = 242.28349177525817
D5_7 = 165.20045171727028
D5_8 = -374.5467547226902
D5_9 = -22.113666853125306
D5_10 = 7.733432668472264
D5_11 = -30.674084731089398
D5_12 = -9.332130526430229
D5_13 = 15.697238121770845
D5_14 = -31.139403219565178
D5_15 = -9.35292435884448
D5_16 = 35.81684148639408
D6_1 = 19.985053242002433
D6_6 = -387.0373087493518
D6_7 = -189.17813819516758
D6_8 = 527.8081592054236
D6_9 = -11.57390253995963
D6_10 = 6.8812326946963
D6_11 = -1.0006050966910838
D6_12 = 0.7777137798053443
D6_13 = -2.778205752353508
D6_14 = -60.19669523126412
D6_15 = 84.32040550667716
D6_16 = 11.99229113618279
D7_1 = -25.69393346270375
D7_6 = -154.18974869023643
D7_7 = -231.5293791760455
D7_8 = 357.6391179106141
D7_9 = 93.40532418362432
D7_10 = -37.45832313645163
D7_11 = 104.0996495089623
D7_12 = 29.8402934266605
D7_13 = -43.53345659001114
D7_14 = 96.32455395918828
D7_15 = -39.17726167561544
D7_16 = -149.72683625798564


@njit(LOOP_SIGNATURE, cache=True, **UNCOUNTED)
def advance(rhs_address, p, y, work, clock, counts, atol, t_out, y_out, rec_t, rec_c, flag):
    """Step until the end, a full record or trouble; arguments as in `run.Run`."""
    rhs = rhs_at(rhs_address)
    n = y.size
    k1, w, new = work[ROW_F], work[ROW_WEIGHTS], work[ROW_NEW]
    c, vector = work[ROW_DENSE : ROW_DENSE + DENSE], work[ROW_VECTOR]
    k2 = work[K2]
    k3 = work[K3]
    k4 = work[K4]
    k5 = work[K5]
    k6 = work[K6]
    k7 = work[K7]
    k8 = work[K8]
    k9 = work[K9]
    k10 = work[K10]
    k11 = work[K11]
    k12 = work[K12]
    k13 = work[K13]
    k14 = work[K14]
    k15 = work[K15]
    k16 = work[K16]
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
        t_new = clock[T_END] if last else t + h
        combine(work, TRIAL, y, (h * A2_1,), (K1,))
        rhs(t + 0.05260015195876773 * h, trial, p, k2)
        combine(work, TRIAL, y, (h * A3_1, h * A3_2), (K1, K2))
        rhs(t + 0.0789002279381516 * h, trial, p, k3)
        combine(work, TRIAL, y, (h * A4_1, h * A4_3), (K1, K3))
        rhs(t + 0.1183503419072274 * h, trial, p, k4)
        combine(work, TRIAL, y, (h * A5_1, h * A5_3, h * A5_4), (K1, K3, K4))
        rhs(t + 0.2816496580927726 * h, trial, p, k5)
        combine(work, TRIAL, y, (h * A6_1, h * A6_4, h * A6_5), (K1, K4, K5))
        rhs(t + 0.3333333333333333 * h, trial, p, k6)
        combine(work, TRIAL, y, (h * A7_1, h * A7_4, h * A7_5, h * A7_6), (K1, K4, K5, K6))
        rhs(t + 0.25 * h, trial, p, k7)
        combine(
            work, TRIAL, y,
            (h * A8_1, h * A8_4, h * A8_5, h * A8_6, h * A8_7),
            (K1, K4, K5, K6, K7),
        )  # fmt: skip
        rhs(t + 0.3076923076923077 * h, trial, p, k8)
        combine(
            work, TRIAL, y,
            (h * A9_1, h * A9_4, h * A9_5, h * A9_6, h * A9_7, h * A9_8),
            (K1, K4, K5, K6, K7, K8),
        )  # fmt: skip
        rhs(t + 0.6512820512820513 * h, trial, p, k9)
        combine(
            work, TRIAL, y,
            (h * A10_1, h * A10_4, h * A10_5, h * A10_6, h * A10_7, h * A10_8, h * A10_9),
            (K1, K4, K5, K6, K7, K8, K9),
        )  # fmt: skip
        rhs(t + 0.6 * h, trial, p, k10)
        combine(
            work, TRIAL, y,
            (h * A11_1, h * A11_4, h * A11_5, h * A11_6, h * A11_7, h * A11_8, h * A11_9, h *
             A11_10),
            (K1, K4, K5, K6, K7, K8, K9, K10),
        )  # fmt: skip
        rhs(t + 0.8571428571428571 * h, trial, p, k11)
        combine(
            work, TRIAL, y,
            (h * A12_1, h * A12_4, h * A12_5, h * A12_6, h * A12_7, h * A12_8, h * A12_9, h *
             A12_10, h * A12_11),
            (K1, K4, K5, K6, K7, K8, K9, K10, K11),
        )  # fmt: skip
        rhs(t_new, trial, p, k12)
        combine(
            work, ROW_NEW, y,
            (h * B1, h * B6, h * B7, h * B8, h * B9, h * B10, h * B11, h * B12),
            (K1, K6, K7, K8, K9, K10, K11, K12),
        )  # fmt: skip
        rhs(t_new, new, p, k13)
        counts[RHS] += 12
        combine(
            work, S, None,
            (E5_1, E5_6, E5_7, E5_8, E5_9, E5_10, E5_11, E5_12),
            (K1, K6, K7, K8, K9, K10, K11, K12),
        )  # fmt: skip
        for i in range(n):
            s[i] = w[i] * s[i]
        five = sum_squares(s)
        combine(
            work, S, None,
            (E3_1, E3_6, E3_7, E3_8, E3_9, E3_10, E3_11, E3_12),
            (K1, K6, K7, K8, K9, K10, K11, K12),
        )  # fmt: skip
        for i in range(n):
            s[i] = w[i] * s[i]
        three = sum_squares(s)
        err = 0.0
        if not (five == 0.0 and three == 0.0):
            err = h * five / math.sqrt((five + 0.01 * three) * n)
        if not err <= 1.0:
            reject(err, h, clock, counts, 0.125)
            continue
        counts[STEPS] += 1
        counts[NONFINITE] = 0
        if wants_output(t_new, t_out, rec_t, counts):
            combine(
                work, TRIAL, y,
                (h * A14_1, h * A14_7, h * A14_8, h * A14_9, h * A14_10, h * A14_11, h * A14_12, h
                 * A14_13),
                (K1, K7, K8, K9, K10, K11, K12, K13),
            )  # fmt: skip
            rhs(t + 0.1 * h, trial, p, k14)
            combine(
                work, TRIAL, y,
                (h * A15_1, h * A15_6, h * A15_7, h * A15_8, h * A15_11, h * A15_12, h * A15_13, h
                 * A15_14),
                (K1, K6, K7, K8, K11, K12, K13, K14),
            )  # fmt: skip
            rhs(t + 0.2 * h, trial, p, k15)
            combine(
                work, TRIAL, y,
                (h * A16_1, h * A16_6, h * A16_7, h * A16_8, h * A16_9, h * A16_13, h * A16_14, h
                 * A16_15),
                (K1, K6, K7, K8, K9, K13, K14, K15),
            )  # fmt: skip
            rhs(t + 0.7777777777777778 * h, trial, p, k16)
            counts[RHS] += 3
            for i in range(n):
                c[0, i] = new[i] - y[i]
            for i in range(n):
                c[1, i] = h * k1[i] - c[0, i]
            for i in range(n):
                c[2, i] = 2.0 * c[0, i] - h * (k1[i] + k13[i])
            combine(
                work, ROW_DENSE + 3, None,
                (h * D4_1, h * D4_6, h * D4_7, h * D4_8, h * D4_9, h * D4_10, h * D4_11, h *
                 D4_12, h * D4_13, h * D4_14, h * D4_15, h * D4_16),
                (K1, K6, K7, K8, K9, K10, K11, K12, K13, K14, K15, K16),
            )  # fmt: skip
            combine(
                work, ROW_DENSE + 4, None,
                (h * D5_1, h * D5_6, h * D5_7, h * D5_8, h * D5_9, h * D5_10, h * D5_11, h *
                 D5_12, h * D5_13, h * D5_14, h * D5_15, h * D5_16),
                (K1, K6, K7, K8, K9, K10, K11, K12, K13, K14, K15, K16),
            )  # fmt: skip
            combine(
                work, ROW_DENSE + 5, None,
                (h * D6_1, h * D6_6, h * D6_7, h * D6_8, h * D6_9, h * D6_10, h * D6_11, h *
                 D6_12, h * D6_13, h * D6_14, h * D6_15, h * D6_16),
                (K1, K6, K7, K8, K9, K10, K11, K12, K13, K14, K15, K16),
            )  # fmt: skip
            combine(
                work, ROW_DENSE + 6, None,
                (h * D7_1, h * D7_6, h * D7_7, h * D7_8, h * D7_9, h * D7_10, h * D7_11, h *
                 D7_12, h * D7_13, h * D7_14, h * D7_15, h * D7_16),
                (K1, K6, K7, K8, K9, K10, K11, K12, K13, K14, K15, K16),
            )  # fmt: skip
            deliver(t, h, y, c, t_new, new, t_out, y_out, rec_t, rec_c, counts)
        clock[H_LAST] = h
        accept_pi(err, h, last, clock, counts, ALPHA, BETA, LOG_ERROR)
        clock[T] = t_new
        for i in range(n):
            y[i] = new[i]
        for i in range(n):
            k1[i] = k13[i]
        set_weights(y, atol, rtol, w)
        code = state_code(y, clock)
        if code != RUNNING:
            return code
        if counts[PATIENCE] > 0:
            counts[AGE] += 1
            if limited_by_stability(rhs, p, y, k1, vector, trial, k2, w, clock, counts, STABILITY):
                return _STIFF
    return _DONE
