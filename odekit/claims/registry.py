"""Claims of all installed derivations.

A derivation is named in the entry-point group ``odekit.derivations``; its claims are the tuple
``CLAIMS`` of the module ``claims`` beside its targets, the verdicts recorded for them the mapping
``VERDICTS`` of the module ``verdicts``.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib.metadata import entry_points
from types import ModuleType

from odekit.claims.claim import Claim
from odekit.errors import OdekitError, unknown_name

__all__ = ["all_claims", "choose", "get", "recorded"]


def _modules(name: str) -> Iterator[ModuleType]:
    """Modules of that name beside the targets of each installed derivation."""
    for point in sorted(entry_points(group="odekit.derivations"), key=lambda p: p.name):
        package = point.value.partition(":")[0]
        if importlib.util.find_spec(f"{package}.{name}") is not None:
            yield importlib.import_module(f"{package}.{name}")


@lru_cache(maxsize=1)
def _collect() -> dict[str, Claim]:
    claims: dict[str, Claim] = {}
    for module in _modules("claims"):
        for claim in module.CLAIMS:
            if claim.id in claims:
                raise OdekitError(f"two claims have the id {claim.id}; rename one")
            claims[claim.id] = claim
    return claims


def all_claims(paper: str | None = None) -> tuple[Claim, ...]:
    """Every claim, or those whose id begins with a paper's key."""
    return tuple(c for c in _collect().values() if paper is None or c.id.split(".", 1)[0] == paper)


def recorded() -> dict[str, str]:
    """The status recorded for each claim when its derivation was published."""
    return {name: status for m in _modules("verdicts") for name, status in m.VERDICTS.items()}


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


def choose(names: Iterable[str]) -> tuple[Claim, ...]:
    """Claims by id or by their paper's key; all of them for no name."""
    chosen: dict[str, Claim] = {}
    for name in names:
        of_paper = all_claims(name)
        for claim in of_paper or (get(name),):
            chosen[claim.id] = claim
    return tuple(chosen.values()) or all_claims()
