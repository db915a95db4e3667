"""What can be reproduced: targets, the pictures that they draw, and how both are found."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from odekit.errors import InputError, OdekitWarning, unknown_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Picture", "Target", "choose", "discover"]

GROUP = "odekit.derivations"
MAIN_PAPER = "zhang2025"
# A target's name is also a path below the output folder, so it may not climb out of it.
_NAME = re.compile(r"[A-Za-z0-9_-]+/[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class Target:
    """Something that ``odekit reproduce`` can draw.

    Parameters
    ----------
    name : str
        The paper's key and the figure's, ``"zhang2025/fig1"``; also the path of the files written.
    title : str
        One line on what is drawn.
    module : str
        Module with ``draw(quick: bool, progress: Callable[[str], None]) -> Picture``; it is
        imported only when the target is run.
    main : bool
        Whether the target belongs to what runs when no target is named.
    """

    name: str
    title: str
    module: str
    main: bool = False

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InputError(
                f"Target name {self.name!r} must be 'paper/figure' in letters, digits, '-' and '_'."
            )

    @property
    def paper(self) -> str:
        """Key of the paper, the part before the slash."""
        return self.name.partition("/")[0]


@dataclass(frozen=True)
class Picture:
    """What a target draws.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        The figure; it is saved as PNG and as SVG.
    numbers : mapping
        The numbers drawn: names to numbers, strings, arrays, lists and mappings of these.
    caption : str
        What the picture shows and how it was made, in a few sentences.
    equations : tuple of str
        LaTeX of the equations behind it, without delimiters.
    """

    figure: Figure
    numbers: Mapping[str, Any] = field(default_factory=dict)
    caption: str = ""
    equations: tuple[str, ...] = ()


def discover() -> dict[str, Target]:
    """Find the targets of every installed derivation.

    Returns
    -------
    dict
        Target by name, papers in alphabetical order and targets in their paper's order. A
        derivation that cannot be imported is left out with an `OdekitWarning`.
    """
    found: dict[str, Target] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            targets = tuple(entry.load())
        except Exception as error:  # another's package: whatever it raises must not stop the rest
            reason = f"{type(error).__name__}: {error}"
            warnings.warn(
                f"Derivation {entry.name!r} ({entry.value}) is left out: {reason}",
                OdekitWarning,
                stacklevel=2,
            )
            continue
        for target in targets:
            found.setdefault(target.name, target)
    return found


def choose(names: Sequence[str], known: Mapping[str, Target]) -> tuple[Target, ...]:
    """Select targets by name.

    Parameters
    ----------
    names : sequence of str
        Names of targets, keys of papers (all of that paper's) or ``"all"``; with none, the main
        targets of zhang2025.
    known : mapping
        Target by name, as `discover` returns it.

    Returns
    -------
    tuple of Target
        Without repetition, in the order asked for.

    Raises
    ------
    InputError
        For a name that is unknown, or when there is nothing to run.
    """
    chosen: dict[str, Target] = {}
    if not names:
        chosen = {t.name: t for t in known.values() if t.paper == MAIN_PAPER and t.main}
        if not chosen:
            listed = ", ".join(known) or "none"
            raise InputError(f"No main target of {MAIN_PAPER} is installed; name one of: {listed}.")
    papers = dict.fromkeys(target.paper for target in known.values())
    for name in names:
        if name == "all":
            chosen |= known
        elif name in papers:
            chosen |= {t.name: t for t in known.values() if t.paper == name}
        elif name in known:
            chosen[name] = known[name]
        else:
            raise unknown_name("target", name, [*known, *papers, "all"])
    return tuple(chosen.values())
