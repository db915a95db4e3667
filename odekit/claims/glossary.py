"""What the letters of a claim stand for, from one glossary for all claims of a paper."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from odekit.claims.claim import Claim

__all__ = ["with_symbols"]


def with_symbols(claims: Iterable[Claim], glossary: Mapping[str, str]) -> tuple[Claim, ...]:
    """Give each claim, and its correction, the lines of a glossary that it needs.

    Parameters
    ----------
    claims : iterable of Claim
    glossary : mapping of str to str
        A regular expression to look for in what a claim says, in its equations, assumptions and
        explanation, and the line that explains the letters it finds.

    Returns
    -------
    tuple of Claim
        With `Claim.symbols`: its own first, then the glossary's in the glossary's order.
    """
    return tuple(_explained(claim, glossary) for claim in claims)


def _explained(claim: Claim, glossary: Mapping[str, str]) -> Claim:
    text = "\n".join(
        (
            claim.says,
            *claim.equations,
            *claim.assumes,
            *(need.says for need in claim.needs),
            claim.explanation,
        )
    )
    lines = [line for pattern, line in glossary.items() if re.search(pattern, text)]
    correction = None if claim.correction is None else _explained(claim.correction, glossary)
    return replace(claim, symbols=(*claim.symbols, *lines), correction=correction)
