"""The statements of the notes on Zhang et al. 2025, each put to the test.

By subject: `stated_networks` (layer, loss, linear networks), `stated_merged` and `stated_course`
(merged keys and queries: fixed points, time course), `stated_separate` and `stated_saddles`
(separate ones: fixed points, losses and stability there), `stated_plateaus` (the path),
`stated_ranks`, `stated_components` (principal component regression), `stated_softmax` and
`stated_starts`. derivations/README.md maps each sentence to its claim.
"""

from __future__ import annotations

from odekit.claims import Claim, with_symbols

from . import (
    stated_components,
    stated_course,
    stated_merged,
    stated_networks,
    stated_plateaus,
    stated_ranks,
    stated_saddles,
    stated_separate,
    stated_softmax,
    stated_starts,
)

_ALL: tuple[Claim, ...] = (
    *stated_networks.CLAIMS,
    *stated_merged.CLAIMS,
    *stated_course.CLAIMS,
    *stated_separate.CLAIMS,
    *stated_saddles.CLAIMS,
    *stated_plateaus.CLAIMS,
    *stated_ranks.CLAIMS,
    *stated_components.CLAIMS,
    *stated_softmax.CLAIMS,
    *stated_starts.CLAIMS,
)

GLOSSARY = {
    r"\bL\b|Lambda|lambda": (
        "Lambda, or L: covariance of the tokens; lambda_d, e_d: its eigenvalues, the largest "
        "first, and eigenvectors"
    ),
    r"beta|x_q|y_q": (
        "x_n, y_n = w . x_n: the N tokens and labels of a context, w ~ N(0, I) fresh for each; "
        "x_q: the query; beta = (1/N) sum_n y_n x_n"
    ),
    r"A_|heads?\b|\b[vkqUKQ]_|\bpair\b": (
        "heads: value weight v_h, and a key-query block U_h (merged, ATTN_M) or R keys k_hr and "
        "queries q_hr (separate, ATTN_S)"
    ),
    r"\bA(?=[*=_^,;:.)]| [=*GBML(]|\\| is | at | in | only)|beta\^T A|A_|tr\(?A|in A\b": (
        "A: sum_h v_h U_h or sum_h v_h sum_r k_hr q_hr^T; linear attention predicts beta^T A x_q"
    ),
    r"\bG\b|\bB\b": (
        "B = L ((1 + 1/N) L + (tr L/N) I), the context's mean squared second moment; "
        "G = L^2 - B A L, minus half the loss' slope in A"
    ),
    r"\bc\b|c_d|c_\{|\\mu(?!\()|\bmu\b": (
        "c_d = 1 + (1 + tr L/lambda_d)/N and mu_d = lambda_d c_d: an eigenvector is learned when "
        "e_d . A e_d = 1/mu_d (white tokens: c = 1 + (1 + D)/N)"
    ),
    r"M_|mathcal M": "M_m: the rest where the m leading eigenvectors are learned",
    r"\bm\b|m\+1": "m: how many eigenvectors are learned",
    r"sigma": "sigma(t): the factor of beta . x_q in the prediction; w_init: size of the start",
    r"v_0|v_d\(0\)": "v_0: value weight of a head at the start",
    r"\btau|\\tau": "tau: time constant of the flow, tau d(theta)/dt = -(1/2) d(loss)/d(theta)",
    r"[Ll]oss|mathcal L": "loss: expected squared error of the query's label, without 1/2",
    r"\b[NDHR]\b": "N, D, H, R: context length, dimension of tokens, heads, rank of keys",
}

CLAIMS: tuple[Claim, ...] = with_symbols(_ALL, GLOSSARY)
