"""Location of the compiled-code cache when running with vLLM."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version

from specdec.folders import COMPILED_VARIABLE, cache_folder


def keep_apart() -> None:
    """Use a cache folder per numba version, because another version than vLLM's would discard the cache at every change."""
    if os.environ.get(COMPILED_VARIABLE) not in (None, str(cache_folder() / "compiled")):
        return  # set by the user
    try:
        found = version("numba")
    except PackageNotFoundError:
        return
    os.environ[COMPILED_VARIABLE] = str(cache_folder() / f"compiled-numba-{found}")
