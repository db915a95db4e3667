"""Where a program keeps a store that is to outlive it, without asking its user for a place."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from odekit.codegen.folder import cache_root
from odekit.errors import InputError
from odekit.sweep.store import FORMAT

__all__ = ["kept"]


def kept(name: str) -> Path:
    """Return a place for a store beside the cache of compiled fields.

    A figure that draws a sweep resumes from it. ``odekit cache clear`` removes it, too; where the
    cache is off or cannot be used, the place is a fresh temporary one and nothing is resumed.

    Parameters
    ----------
    name : str
        Letters, digits, ``-`` and ``_``, such as ``"examples-phase-diagram"``.

    Returns
    -------
    Path
        In a folder that exists; the file itself may not.
    """
    if not isinstance(name, str) or not re.fullmatch(r"[\w-]{1,100}", name, re.ASCII):
        raise InputError(f"The name of a kept sweep is letters, digits, '-' and '_', got {name!r}.")
    root = cache_root()
    folder = Path(tempfile.mkdtemp(prefix="odekit-")) if root is None else root / "sweeps"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / f"{name}.{FORMAT}"  # an older odekit's store is left alone
