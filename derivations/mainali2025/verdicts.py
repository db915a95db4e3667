"""Verdicts recorded for the claims, to be noticed when one changes; none is read by a check."""

VERDICTS = {
    "mainali2025.eq6": "holds numerically",
    "mainali2025.eq8": "holds numerically",
    "mainali2025.zero-gradient": "proved",
    "mainali2025.eq9": "needs assumption",
    "mainali2025.eq11": "needs assumption",
    "mainali2025.eq11-iid": "proved",
    "mainali2025.timescale": "needs assumption",
    "mainali2025.timescale-iid": "proved",
    "mainali2025.eqA84": "proved",
    "mainali2025.eq13": "needs assumption",
    "mainali2025.eq13-unbalanced": "proved",
    "mainali2025.convergence-time": "refuted",
    "mainali2025.eq14": "refuted",
    "mainali2025.loss-at-convergence": "proved",
    "mainali2025.stages": "needs assumption",
    "mainali2025.eq15": "holds numerically",
    "mainali2025.eq16": "holds numerically",
}
