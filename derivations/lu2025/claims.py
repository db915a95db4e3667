"""The sentences of the abstract of Lu et al. 2025, each put to the test.

Setting: tokens ``x ~ N(0, I_d/d)``, context length ``alpha d``, ``kappa d`` pretraining tasks,
``tau d^2`` pretraining contexts, label noise rho. ``q = (1 + rho)/alpha`` and ``c = 1 + q``.
Errors: ICL on a fresh task, IDG on a task of the pretraining pool.
"""

from __future__ import annotations

from odekit.claims import Claim, with_symbols

from . import stated_descent, stated_regimes

GLOSSARY = {
    r"alpha|ell|[Cc]ontext": (
        "tokens x ~ N(0, I_d/d), tasks with |w|^2 = d, labels with noise of variance rho; context "
        "length l = alpha d"
    ),
    r"kappa|tasks": "kappa d: number of pretraining tasks; infinite: a fresh task in each context",
    r"tau|contexts": "tau d^2: number of pretraining contexts",
    r"e_|error|gap": (
        "e_ICL, e_IDG: squared error on a fresh task, and on a task of the pretraining pool; both "
        "include rho"
    ),
    r"\bq\b|\bc\b": "q = (1 + rho)/alpha: noise of a context; c = 1 + q",
    r"Gamma|ridge": (
        "Gamma: the layer's weights (d, d + 1), fitted to features H of contexts; lambda: ridge"
    ),
}

CLAIMS: tuple[Claim, ...] = with_symbols((*stated_descent.CLAIMS, *stated_regimes.CLAIMS), GLOSSARY)
