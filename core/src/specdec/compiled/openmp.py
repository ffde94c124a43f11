"""Threads that OpenMP keeps for a thread that has ended its parallel work."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

_SOFT = 1
"""`omp_pause_soft` of OpenMP 5: what is given up comes back when it is needed."""


def release_threads() -> None:
    """Have OpenMP end the threads that it keeps for the calling thread, until this one works in parallel again.

    GNU's OpenMP counts the threads that it keeps for all of them. Where they are more than there are processors, threads that
    wait sleep at once instead of looking for work a little longer, and a pass of a small model, with a hundred short waits,
    takes five times as long. Elsewhere nothing happens.
    """
    if not sys.platform.startswith("linux"):
        return
    for path in {line.split()[-1] for line in _maps() if "libgomp" in line}:
        try:
            pause = ctypes.CDLL(path).omp_pause_resource_all
        except (OSError, AttributeError):  # a file that is gone, or an OpenMP before version 5
            continue
        pause(_SOFT)


def _maps() -> list[str]:
    try:
        return Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
