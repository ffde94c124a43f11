"""numba's decorator with our cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

from specdec_kernels.cpu.compiled.cache import CodeCache

F = TypeVar("F", bound=Callable[..., Any])


def njit(*, cache: bool = False, **options: Any) -> Callable[[F], F]:
    """Compile a function on its first call with each combination of types, like `numba.njit`.

    Args:
        cache: keep the code in the folder for compiled code, for functions that are called from Python.
        options: numba's. Without `fastmath` a function is compiled without: numba would take that of whoever calls it first.
    """
    options.setdefault("fastmath", False)

    def decorate(function: F) -> F:
        compiled = numba.njit(**options)(function)
        if cache and compiled is not function:  # the same function where NUMBA_DISABLE_JIT is set
            compiled._cache = CodeCache(function)
        return compiled  # type: ignore[no-any-return]  # numba is not annotated

    return decorate
