"""Where a run keeps its state between calls of a compiled loop.

A compiled loop is a plain function: everything that it must remember from one call to the next
(time, step size, the controller's memory, counters) lives in two small arrays, so that a run
can be stopped after any step and continued with the very same floating-point numbers.
"""

from __future__ import annotations

from enum import IntEnum

# Slots of `clock`, float64 (CLOCK_SIZE,). Time in the field's own unit.
T = 0  # time of the state `y`
T_END = 1  # end of the run; never stepped over
H = 2  # step to try next; 0 asks for the initial step to be found
LOG_ERROR = 3  # natural logarithm of the error norm of the last accepted step
RTOL = 4  # relative tolerance
H_MAX = 5  # largest step allowed
H_MIN = 6  # smallest step allowed, on top of 16 roundings of t
BLOW_UP = 7  # largest |y_i| allowed
RADIUS = 8  # spectral radius of the Jacobian as last estimated, 1/time; 0 = unknown
H_LAST = 9  # last accepted step
CLOCK_SIZE = 12

# Slots of `counts`, int64 (COUNTS_SIZE,).
STARTED = 0  # 1 once f(t, y) is in the workspace
STEPS = 1  # accepted steps
REJECTED = 2  # rejected steps
RHS = 3  # calls of the right-hand side
JACOBIANS = 4  # calls of the Jacobian
FACTORS = 5  # matrix factorisations
FILLED = 6  # rows of `y_out` that are filled
RECORDED = 7  # rows of the step record that are filled
MAX_STEPS = 8  # limit of accepted plus rejected steps
STREAK = 9  # consecutive looks that found the step limited by stability
PATIENCE = 10  # 0: never report "stiff"; else report when so many more steps would be needed
FAILED = 11  # rejections in a row
NONFINITE = 12  # 1 when the last rejected trial was not finite
STAGES = 13  # largest number of stages used (stabilised method)
AGE = 14  # steps since the spectral radius was estimated (stabilised method)
CALM = 15  # consecutive steps that a plain explicit method would take more cheaply
MODE = 16  # method at work in a switching loop: 0 the plain one, 1 the stabilised one
SWITCHES = 17  # changes of method so far
STABILISED = 18  # accepted steps taken by the stabilised method
LOOKS = 19  # looks in a row that must find the step limited by stability before "stiff"
AUTONOMOUS = 20  # 1: f does not depend on t, so its time derivative need not be estimated
LOOK_AFTER = 21  # steps from one such look to the next
COUNTS_SIZE = 24

RENEW = 25
"""Steps of the stabilised method between estimates of the spectral radius."""

# Rows of the workspace that every explicit method lays out alike, so that one can take over from
# another in mid-run without evaluating anything anew.
ROW_F = 0  # f(t, y)
ROW_WEIGHTS = 1  # error weights at y
ROW_NEW = 2  # state after the step
ROW_DENSE = 3  # seven rows: interpolant
ROW_VECTOR = 10  # estimate of the dominant eigenvector
ROW_FREE = 11  # the method's own rows from here


class Code(IntEnum):
    """Why a compiled loop returned."""

    DONE = 0  #: reached the end time
    RECORD_FULL = 1  #: the step record is full; call again to continue
    NAN = 2  #: the right-hand side is not finite at an accepted state, or on all sides of it
    BLOW_UP = 3  #: the state outgrew its limit, or grows without bound at this time
    STEP_LIMIT = 4  #: the step limit is reached
    INTERRUPTED = 5  #: somebody set the interruption flag
    STALLED = 6  #: the step size fell below its minimum
    STIFF = 7  #: explicit steps are limited by stability; continue with another method
    RELAXED = 8  #: a plain explicit method would be cheaper from here
