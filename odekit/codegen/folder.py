"""The folder that generated code is kept in, and whether it may be trusted.

Loading machine code from a folder runs whatever is in it, so nothing is read from a folder that
anybody else could have written to.
"""

from __future__ import annotations

import os
import shutil
import stat
import warnings
from dataclasses import dataclass
from pathlib import Path

from odekit.errors import CacheWarning

__all__ = ["CacheInfo", "cache_info", "cache_root", "clear_cache", "distrust", "warn_cache"]

VERSION = "v1"
"""Layout of the folder; another layout gets another name."""

OFF = ("off", "0", "no", "false")


@dataclass(frozen=True)
class CacheInfo:
    """What the cache of compiled fields holds.

    Parameters
    ----------
    path : Path
        Its folder; moved by the environment variable ``ODEKIT_CACHE_DIR``.
    enabled : bool
        False with ``ODEKIT_CACHE=off``.
    problem : str
        Why the folder is not used; empty if it is.
    fields, modules : int
        Numbers of known fields and of compiled modules.
    bytes : int
        Size on disk.
    """

    path: Path
    enabled: bool
    problem: str
    fields: int
    modules: int
    bytes: int


def enabled() -> bool:
    """Whether the environment leaves the cache on."""
    return os.environ.get("ODEKIT_CACHE", "").strip().lower() not in OFF


def location() -> Path:
    """Where the cache is, whether it exists or not."""
    chosen = os.environ.get("ODEKIT_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser().absolute() / VERSION
    import platformdirs

    return Path(platformdirs.user_cache_dir("odekit", appauthor=False)) / VERSION


def cache_root() -> Path | None:
    """Return the cache's folder, made if need be; None if it is off or cannot be used.

    Warns
    -----
    CacheWarning
        When the folder cannot be made or others can write to it.
    """
    if not enabled():
        return None
    path = location()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = path.resolve(strict=True)
    except OSError as error:
        warn_cache(f"cannot make the folder {path} ({error.strerror or error})")
        return None
    problem = distrust(path) or _distrust_ancestors(path)
    if problem:
        warn_cache(problem)
        return None
    return path


def distrust(path: Path) -> str:
    """Say why a file or folder is not to be trusted; empty if it is."""
    if not hasattr(os, "getuid"):  # Windows: the user's profile is private by default
        return ""
    try:
        found = path.lstat()
    except OSError as error:
        return f"{path} cannot be read ({error.strerror})"
    if stat.S_ISLNK(found.st_mode):
        return f"{path} is a symbolic link"
    if found.st_uid != os.getuid():
        return f"{path} belongs to another user"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others can write to {path}"
    return ""


def _distrust_ancestors(path: Path) -> str:
    """Whoever can write to a folder above can put another folder in this one's place."""
    if not hasattr(os, "getuid"):
        return ""
    for folder in path.parents:
        found = folder.stat()
        loose = found.st_mode & stat.S_IWOTH or (
            found.st_mode & stat.S_IWGRP and found.st_gid != os.getgid()
        )
        if loose and not found.st_mode & stat.S_ISVTX:
            return f"others can write to {folder}"
        if found.st_uid not in (0, os.getuid()):
            return f"{folder} belongs to another user"
    return ""


def warn_cache(reason: str) -> None:
    """Warn that the cache is not used, and what to do."""
    warnings.warn(
        f"The cache of compiled fields is not used: {reason}. Results do not change; set "
        "ODEKIT_CACHE_DIR to a folder of your own, or ODEKIT_CACHE=off.",
        CacheWarning,
        stacklevel=3,
    )


def cache_info() -> CacheInfo:
    """Describe the cache; nothing is made or changed.

    Returns
    -------
    CacheInfo
    """
    path = location()
    problem = ""
    if path.exists():
        real = path.resolve()
        problem = distrust(real) or _distrust_ancestors(real)
    return CacheInfo(
        path,
        enabled(),
        problem,
        len(list(path.glob("fields/*.json"))),
        len(list(path.glob("modules/*/seal.json"))),
        sum(f.stat().st_size for f in path.rglob("*") if f.is_file()),
    )


def clear_cache() -> CacheInfo:
    """Remove everything from the cache.

    Returns
    -------
    CacheInfo
        What it held.
    """
    info = cache_info()
    if info.path.exists():
        shutil.rmtree(info.path)
    return info
