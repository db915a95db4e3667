"""Claims of all installed derivations.

A derivation is named in the entry-point group ``odekit.derivations``; its claims are the tuple
``CLAIMS`` of the module ``claims`` beside its targets, the verdicts recorded for them the mapping
``VERDICTS`` of the module ``verdicts``.
"""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Iterable
from functools import lru_cache
from importlib.metadata import entry_points
from types import ModuleType

from odekit.claims.claim import Claim
from odekit.errors import OdekitError, OdekitWarning, unknown_name

__all__ = ["all_claims", "choose", "get", "recorded"]


def _packages() -> dict[str, str]:
    """The package of each installed derivation by its paper's key."""
    points = sorted(entry_points(group="odekit.derivations"), key=lambda p: p.name)
    return {point.name: point.value.partition(":")[0] for point in points}


def _module(package: str, name: str) -> ModuleType | None:
    """The module of that name beside a derivation's targets, if it has one.

    Warns
    -----
    OdekitWarning
        When the derivation itself cannot be imported: another's package must not stop the rest.
    """
    try:
        found = importlib.util.find_spec(f"{package}.{name}")
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        warnings.warn(f"{package} is left out: {reason}", OdekitWarning, stacklevel=2)
        return None
    return None if found is None else importlib.import_module(f"{package}.{name}")


@lru_cache(maxsize=64)
def _of(package: str) -> tuple[Claim, ...]:
    # One paper at a time: stating claims derives the models that they speak of, which takes time.
    module = _module(package, "claims")
    return () if module is None else tuple(module.CLAIMS)


def _collect() -> dict[str, Claim]:
    claims: dict[str, Claim] = {}
    for package in _packages().values():
        for claim in _of(package):
            if claim.id in claims:
                raise OdekitError(f"two claims have the id {claim.id}; rename one")
            claims[claim.id] = claim
    return claims


def all_claims(paper: str | None = None) -> tuple[Claim, ...]:
    """Every claim, or those of one paper by its key."""
    if paper is None:
        return tuple(_collect().values())
    package = _packages().get(paper)
    return () if package is None else _of(package)


def recorded() -> dict[str, str]:
    """The status recorded for each claim when its derivation was published."""
    modules = (_module(package, "verdicts") for package in _packages().values())
    return {name: status for m in modules if m is not None for name, status in m.VERDICTS.items()}


def get(name: str) -> Claim:
    """One claim by its id.

    Raises
    ------
    InputError
        For an unknown id, with the nearest one.
    """
    for claim in all_claims(name.partition(".")[0]):
        if claim.id == name:
            return claim
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
