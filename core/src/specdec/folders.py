"""Cache folders of specdec: their contents can be recreated."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["CACHE_VARIABLE", "COMPILED_VARIABLE", "cache_folder", "compiled_folder"]

CACHE_VARIABLE = "SPECDEC_CACHE"
"""Environment variable that moves the cache folder; its default is `~/.cache/specdec`."""
COMPILED_VARIABLE = "NUMBA_CACHE_DIR"
"""numba's own environment variable; moves only the compiled code."""


def cache_folder() -> Path:
    """Return the cache folder: `SPECDEC_CACHE`, or `specdec` in the user's cache folder; it may be impossible to make."""
    given = os.environ.get(CACHE_VARIABLE)
    return (
        _expanded(given) if given else _expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "specdec"
    )


def compiled_folder() -> Path:
    """Return the folder for compiled code: `NUMBA_CACHE_DIR`, or `compiled` in the cache folder."""
    given = os.environ.get(COMPILED_VARIABLE)
    return _expanded(given) if given else cache_folder() / "compiled"


def _expanded(path: str) -> Path:
    """Expand `~`, which is `/` for a user without a home, as container runtimes set it."""
    try:
        return Path(path).expanduser()
    except RuntimeError:  # HOME is unset, and the user, or the one named after `~`, unknown
        return Path("/", *Path(path).parts[1:])
