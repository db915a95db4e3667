"""The statements of the notes on Mainali & Teixeira 2025, each put to the test.

Each is tested from the raw layer (equation 1 and the law of the tasks), not from the reduced
equations. ``s`` is the spectrum of the token covariance, N the context length; time is in units of
``1/(eta P)``. By subject: `stated_layer`, `stated_modes`, `stated_growth`,
`stated_course`, `stated_losses`, `stated_measures`.
"""

from __future__ import annotations

from odekit.claims import Claim, with_symbols

from . import (
    stated_course,
    stated_growth,
    stated_layer,
    stated_losses,
    stated_measures,
    stated_modes,
)

_ALL: tuple[Claim, ...] = (
    *stated_layer.CLAIMS,
    *stated_modes.CLAIMS,
    *stated_growth.CLAIMS,
    *stated_course.CLAIMS,
    *stated_losses.CLAIMS,
    *stated_measures.CLAIMS,
)

GLOSSARY = {
    r"p_?1|p_?2|q_?1|q_?2|\\hat\\?[yG]|prediction": (
        "p1, p2, q1, q2: blocks of the layer's value and query matrices; W: the task, labels are "
        "W x; S hat: second moment of the context's tokens"
    ),
    r"\bs\b|s_|\bS\b": (
        "S: covariance of the tokens (d, d); s_a: its eigenvalues; N: context length"
    ),
    r"s_inf|s\^\\infty|a_inf|a\^\\infty|a_\\infty": (
        "s_inf = (1 + 1/N) s + tr(S)/N, and a_inf = 1/s_inf"
    ),
    r"\bp_a|\bp_\\|\bp q|\bp and q|p0|\bmode": (
        "p_a, q_a: diagonal of p2 and q1 in the eigenbasis of S, the modes; dots: d/dt in units of "
        "1/(eta P)"
    ),
    r"\ba =|a\(t\)|\ba_|\ba0\b|\ba\^2|a_\\alpha|\\dot a": (
        "a = p q: product of a mode; a_0 at the start, a_inf at the end"
    ),
    r"eta|tau": (
        "eta P: learning rate times sequences, the unit of 1/time; tau_a = 1/(eta P s_a^2)"
    ),
    r"\bK\b": "K = (p0^2 - q0^2)^2: what the flow of a mode keeps",
    r"kappa|\bm\b": "m: number of modes that are learned; kappa: the sum of s^(3/2) a over them",
    r"[Ll]oss|mathcal L": "loss: expected squared error; (14) is about half of it",
}

CLAIMS: tuple[Claim, ...] = with_symbols(_ALL, GLOSSARY)
