"""Memory as native code sees it."""

from __future__ import annotations

import ctypes

import numpy as np


def writable(array: np.ndarray) -> np.ndarray:
    """Return the memory of a read-only array, as native code would see it."""
    kind = ctypes.c_int32 * len(array)
    return np.ctypeslib.as_array(kind.from_address(array.ctypes.data))
