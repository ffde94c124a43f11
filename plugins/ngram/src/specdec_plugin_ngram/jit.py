"""Numba behind a typed decorator."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function on its first call; keep the machine code on disk where there is room for it."""
    try:
        return cast(Callable[P, R], numba.njit(cache=True)(function))
    except RuntimeError:  # a read-only installation and no writable home: compile in every process
        return cast(Callable[P, R], numba.njit(function))
