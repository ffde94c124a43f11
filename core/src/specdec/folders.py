"""Cache folders of specdec: their contents can be recreated."""

from __future__ import annotations

import os
from pathlib import Path

CACHE_VARIABLE = "SPECDEC_CACHE"
"""Environment variable that moves the cache folder; its default is `~/.cache/specdec`."""
COMPILED_VARIABLE = "NUMBA_CACHE_DIR"
"""numba's own environment variable; moves only the compiled code."""


def cache_folder() -> Path:
    """Return the cache folder: `SPECDEC_CACHE`, or `specdec` in the user's cache folder."""
    given = os.environ.get(CACHE_VARIABLE)
    if given:
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "specdec"


def compiled_folder() -> Path:
    """Return the folder for compiled code: `NUMBA_CACHE_DIR`, or `compiled` in the cache folder."""
    return Path(os.environ.get(COMPILED_VARIABLE) or cache_folder() / "compiled")
