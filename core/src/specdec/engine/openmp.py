"""Releases the threads that OpenMP keeps for a thread that has finished its parallel work."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

_SOFT = 1
"""`omp_pause_soft` of OpenMP 5: released resources come back when they are needed."""


def release_threads() -> None:
    """End the threads that OpenMP keeps for the calling thread, until this thread works in parallel again.

    GNU's OpenMP counts the threads that it keeps for all calling threads. If there are more than processors, waiting threads
    sleep at once instead of spinning for a while, and a pass of a small model, with a hundred short waits, takes five times
    as long. On other platforms and with other OpenMP libraries nothing happens.
    """
    for pause in _pauses(len(sys.modules)):
        pause(_SOFT)


@lru_cache(maxsize=1)
def _pauses(num_modules: int) -> list[Callable[[int], int]]:
    """Return the pause function of each libgomp of this process; `num_modules` makes imports trigger a new search."""
    if not sys.platform.startswith("linux"):
        return []
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found: list[Callable[[int], int]] = []
    for path in sorted({line.split()[-1] for line in maps if "libgomp" in line}):
        with suppress(OSError, AttributeError):  # the file is gone, or OpenMP is older than version 5
            found.append(ctypes.CDLL(path).omp_pause_resource_all)
    return found
