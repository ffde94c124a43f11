"""Cache folders of specdec: their contents can be recreated."""

from __future__ import annotations

import os
from pathlib import Path

from specdec.errors import ConfigError

__all__ = ["CACHE_VARIABLE", "COMPILED_VARIABLE", "cache_folder", "compiled_folder"]

CACHE_VARIABLE = "SPECDEC_CACHE"
"""Environment variable that moves the cache folder; its default is `~/.cache/specdec`."""
COMPILED_VARIABLE = "NUMBA_CACHE_DIR"
"""numba's own environment variable; moves only the compiled code."""


def cache_folder() -> Path:
    """Return the cache folder: `SPECDEC_CACHE`, or `specdec` in the user's cache folder; it may be impossible to make.

    Raises:
        ConfigError: if it is below the home of a user that is not known.
    """
    return _given(CACHE_VARIABLE) or (_given("XDG_CACHE_HOME") or _expanded("~/.cache")) / "specdec"


def compiled_folder() -> Path:
    """Return the folder for compiled code: `NUMBA_CACHE_DIR`, or `compiled` in the cache folder; see `cache_folder`."""
    return _given(COMPILED_VARIABLE) or cache_folder() / "compiled"


def _given(variable: str) -> Path | None:
    value = os.environ.get(variable)
    if not value:
        return None
    found = _expanded(value)
    if str(found).startswith("~"):
        raise ConfigError(
            f"{variable}={value!r}: there is no user {found.parts[0][1:]!r}: give a folder that exists or can be made"
        )
    return found


def _expanded(path: str) -> Path:
    """Expand `~`, which is `/` for a user without a home, as container runtimes set it; those of unknown users are left."""
    found = Path(os.path.expanduser(path))
    return Path("/", *found.parts[1:]) if found.parts[:1] == ("~",) else found
