"""The decorator of compiled functions: numba's where it is installed."""

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
