"""Threads that OpenMP keeps for a thread that has ended its parallel work."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

_SOFT = 1
"""`omp_pause_soft` of OpenMP 5: what is given up comes back when it is needed."""


def release_threads() -> None:
    """Have OpenMP end the threads that it keeps for the calling thread, until this one works in parallel again.

    GNU's OpenMP counts the threads that it keeps for all of them. Where they are more than there are processors, threads that
    wait sleep at once instead of looking for work a little longer, and a pass of a small model, with a hundred short waits,
    takes five times as long. Elsewhere nothing happens.
    """
    for pause in _pauses(len(sys.modules)):
        pause(_SOFT)


@lru_cache(maxsize=1)
def _pauses(num_modules: int) -> list[Callable[[int], int]]:
    """Return that function of each OpenMP of this process; modules bring them, so it is looked for again after an import."""
    if not sys.platform.startswith("linux"):
        return []
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found: list[Callable[[int], int]] = []
    for path in sorted({line.split()[-1] for line in maps if "libgomp" in line}):
        with suppress(OSError, AttributeError):  # a file that is gone, or an OpenMP before version 5
            found.append(ctypes.CDLL(path).omp_pause_resource_all)
    return found
