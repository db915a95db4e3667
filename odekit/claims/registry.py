"""Claims of all installed derivations.

A derivation is named in the entry-point group ``odekit.derivations``; its claims are the tuple
``CLAIMS`` of the module ``claims`` beside its targets.
"""

from __future__ import annotations

import importlib
import importlib.util
from functools import lru_cache
from importlib.metadata import entry_points

from odekit.claims.claim import Claim
from odekit.errors import OdekitError, unknown_name

__all__ = ["all_claims", "get"]


@lru_cache(maxsize=1)
def _collect() -> dict[str, Claim]:
    claims: dict[str, Claim] = {}
    for point in sorted(entry_points(group="odekit.derivations"), key=lambda p: p.name):
        package = point.value.partition(":")[0]
        if importlib.util.find_spec(f"{package}.claims") is None:
            continue
        for claim in importlib.import_module(f"{package}.claims").CLAIMS:
            if claim.id in claims:
                raise OdekitError(f"two claims have the id {claim.id}; rename one")
            claims[claim.id] = claim
    return claims


def all_claims(paper: str | None = None) -> tuple[Claim, ...]:
    """Every claim, or those whose id begins with a paper's key."""
    return tuple(c for c in _collect().values() if paper is None or c.id.split(".", 1)[0] == paper)


def get(name: str) -> Claim:
    """One claim by its id.

    Raises
    ------
    InputError
        For an unknown id, with the nearest one.
    """
    claims = _collect()
    if name not in claims:
        raise unknown_name("claim", name, claims)
    return claims[name]
