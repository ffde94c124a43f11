"""numba's decorator with our cache."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn, TypeVar

import numba

from specdec_kernels.cpu.compiled.cache import CodeCache

F = TypeVar("F", bound=Callable[..., Any])


def njit(*, cache: bool = False, **options: Any) -> Callable[[F], F]:
    """Compile a function on its first call with each combination of types, like `numba.njit`.

    Args:
        cache: keep the code in the folder for compiled code. Others cannot be called from Python, which takes compiling a
            wrapper, often with the function once more in it: they are compiled into their callers alone.
        options: numba's; with `no_cpython_wrapper` what is kept cannot be called either. Without `fastmath` a function is
            compiled without: numba would take that of whoever calls it first.
    """
    options.setdefault("fastmath", False)
    options.setdefault("no_cfunc_wrapper", True)
    options.setdefault("no_cpython_wrapper", not cache)

    def decorate(function: F) -> F:
        compiled = numba.njit(**options)(function)
        if cache and compiled is not function:  # the same function where NUMBA_DISABLE_JIT is set
            compiled._cache = CodeCache(function)
        if options["no_cpython_wrapper"] and compiled is not function:
            compiled._insert = lambda *_: None  # Python's calls find no code, and ask for it
            compiled._compile_for_args = partial(_refuse, function.__name__)
        return compiled  # type: ignore[no-any-return]  # numba is not annotated

    return decorate


def _refuse(name: str, *_: Any, **__: Any) -> NoReturn:
    raise TypeError(f"only compiled functions call {name}: it needs cache=True to be called from Python")
