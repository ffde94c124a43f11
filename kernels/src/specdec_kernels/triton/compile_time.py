"""Counts the compilation of kernels as work that is done once."""

from __future__ import annotations

import threading
from time import perf_counter
from typing import Any

from triton import knobs

from specdec.interfaces import count_one_time_work


class _Begun(threading.local):
    at: float | None = None
    """When the compilation under way began."""


_begun = _Begun()


def watch_compilation() -> None:
    """Watch it from now on, unless somebody else does."""
    runtime = knobs.runtime
    if runtime.jit_cache_hook is None and runtime.jit_post_compile_hook is None:
        runtime.jit_cache_hook, runtime.jit_post_compile_hook = _begins, _ends


def _begins(**_: Any) -> bool:
    _begun.at = perf_counter()
    return False


def _ends(**_: Any) -> None:
    if _begun.at is not None:
        count_one_time_work(perf_counter() - _begun.at)
        _begun.at = None
