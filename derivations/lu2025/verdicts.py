"""Verdicts recorded for the claims, to be noticed when one changes; none is read by a check."""

VERDICTS = {
    "lu2025.double-descent": "needs assumption",
    "lu2025.double-descent-peak": "needs assumption",
    "lu2025.task-diversity-transition": "needs assumption",
    "lu2025.genuine-in-context-learning": "proved",
    "lu2025.scaling-regime": "holds numerically",
    "lu2025.exact-solution": "holds numerically",
}
