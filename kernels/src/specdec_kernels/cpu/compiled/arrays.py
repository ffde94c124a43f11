"""Copies and sums of arrays, for compiled code.

For `out[:] = source` and `out += more` numba compiles how to write the error of shapes that differ, which takes seconds.
"""

from __future__ import annotations

from typing import Any

from numba import njit


@njit(inline="always")
def copy_row(source: Any, out: Any) -> None:
    """Copy `source [N]` to `out [N]`."""
    for i in range(out.shape[0]):
        out[i] = source[i]


@njit(inline="always")
def copy_rows(source: Any, out: Any) -> None:
    """Copy `source [T, N]` to `out [T, N]`."""
    for t in range(out.shape[0]):
        for i in range(out.shape[1]):
            out[t, i] = source[t, i]


@njit(inline="always")
def add_rows(more: Any, out: Any) -> None:
    """Add `more [T, N]` to `out [T, N]`."""
    for t in range(out.shape[0]):
        for i in range(out.shape[1]):
            out[t, i] += more[t, i]
