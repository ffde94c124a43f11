"""The decorators of compiled functions: numba's where it is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

try:
    from specdec_kernels.cpu.compiled.jit import njit  # keeps the code on disk

    IS_COMPILED = True
except ModuleNotFoundError:  # as where numba has no wheel: the functions are right as they are, but slow

    def njit(*, cache: bool = False, **options: Any) -> Callable[[F], F]:
        """Return a decorator that changes nothing."""
        return lambda function: function

    IS_COMPILED = False

called: Callable[[F], F] = njit(cache=True, error_model="numpy")
"""Decorates what Python calls."""
inner: Callable[[F], F] = njit(error_model="numpy")
"""Decorates what only compiled functions call, and compiles in less time; a call from Python is a `TypeError`."""
