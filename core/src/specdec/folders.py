"""Where specdec keeps what it can make again."""

from __future__ import annotations

import os
from pathlib import Path

CACHE_VARIABLE = "SPECDEC_CACHE"
"""Environment variable that moves the cache folder; its default is `~/.cache/specdec`."""
COMPILED_VARIABLE = "NUMBA_CACHE_DIR"
"""Environment variable, numba's own, that moves compiled code alone."""


def cache_folder() -> Path:
    """Return the folder for what can be made again: `SPECDEC_CACHE`, or `specdec` in the user's cache folder."""
    given = os.environ.get(CACHE_VARIABLE)
    if given:
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "specdec"


def compiled_folder() -> Path:
    """Return the folder for compiled code: `NUMBA_CACHE_DIR`, or `compiled` in the cache folder; never among the sources."""
    return Path(os.environ.get(COMPILED_VARIABLE) or cache_folder() / "compiled")
