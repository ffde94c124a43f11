"""Memory aligned to cache lines, for compiled code: stores of registers as wide as a line are twice as fast there."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specdec_kernels.cpu.compiled.jit import njit

_LINE = 64


@njit(nogil=True, error_model="numpy")
def keep(array: npt.NDArray[np.generic]) -> int:
    """Use an array, so that it lives on while its address is used: compiled code frees arrays after their last use."""
    return array.size


@njit(nogil=True, cache=True, error_model="numpy")
def floats(count: int) -> npt.NDArray[np.float32]:
    """Return an aligned, uninitialised array of `count` float32 numbers."""
    room = np.empty(count + _LINE // 4, np.float32)
    start = -room.ctypes.data % _LINE // 4
    return room[start : start + count]
