"""Numba behind a typed decorator."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function on its first call; cache the machine code on disk if possible."""
    try:
        return cast(Callable[P, R], numba.njit(cache=True)(function))
    except RuntimeError:  # no writable cache directory: compile in every process
        return cast(Callable[P, R], numba.njit(function))
