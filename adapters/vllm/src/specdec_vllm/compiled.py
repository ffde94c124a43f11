"""Where code that is compiled beside vLLM is kept."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version

from specdec.folders import COMPILED_VARIABLE, cache_folder


def keep_apart() -> None:
    """Keep compiled code in a folder for vLLM's version of numba: another one would throw it away at every change."""
    if os.environ.get(COMPILED_VARIABLE) not in (None, str(cache_folder() / "compiled")):
        return  # the user has said where
    try:
        found = version("numba")
    except PackageNotFoundError:
        return
    os.environ[COMPILED_VARIABLE] = str(cache_folder() / f"compiled-numba-{found}")
