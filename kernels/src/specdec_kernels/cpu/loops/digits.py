"""Rows as whole numbers: each block of 32 has a scale, and each of its numbers digits of 8 bits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specdec_kernels.cpu.compiled.jit import njit
from specdec_kernels.cpu.compiled.jobs import job_of
from specdec_kernels.cpu.compiled.team import part_of, share
from specdec_kernels.cpu.loops.pointer import array_at
from specdec_runtime.interfaces.blocks import CHUNK

Floats = npt.NDArray[np.float32]
FACTORS = 4
"""Numbers of a row's block beside its digits: the scale, the sum of what the digits stand for, and that of either half."""
_MANY = 1 << 13
"""From so many numbers on, a team shares the work."""
_LEAST, _MOST = np.float32(1e-30), np.float32(3e38)


@njit(nogil=True, error_model="numpy")
def split_rows(team: int, x: Floats, num_digits: int, digits: npt.NDArray[np.int8], factors: Floats) -> None:
    """Round rows to whole numbers times a scale for each block.

    With one digit a block's largest number is 127. With more the scale is a power of two, so that what the block's largest
    number leaves is at most 2^-14 of it with two digits, and 2^-22 with three: less than float32 rounds in a sum of them.

    Args:
        team: see `product_in_team`.
        x: `[T, K]`, K a multiple of `CHUNK`.
        num_digits: 1 to 3.
        digits: `[K / CHUNK, T, num_digits, CHUNK]`, the highest first; written.
        factors: `[K / CHUNK, T, FACTORS]`, written. The scale is NaN where a block has numbers that are not finite.
    """
    places = x.ctypes.data, digits.ctypes.data, factors.ctypes.data
    if x.size < _MANY:
        _split_part(*places, x.shape[0], x.shape[1], num_digits, 0, 1)
    else:
        share(team, job_of(_split_part, (*places, x.shape[0], x.shape[1], num_digits)))


@njit(nogil=True, error_model="numpy")
def _split_part(
    rows: int, out: int, more: int, num_rows: int, depth: int, num_digits: int, part: int, num_parts: int
) -> None:
    x, num_chunks = array_at(rows, (num_rows, depth), np.float32), depth // CHUNK
    digits = array_at(out, (num_chunks, num_rows, num_digits | 1, CHUNK), np.int8)
    factors = array_at(more, (num_chunks, num_rows, FACTORS), np.float32)
    whole = np.empty(CHUNK, np.int32)
    unit = np.float32(1 << 8 * (num_digits - 1))
    for chunk in part_of(num_chunks, part, num_parts):
        start = chunk * CHUNK
        for t in range(num_rows):
            most, is_finite = np.float32(0.0), True
            for k in range(CHUNK):
                size = abs(x[t, start + k])
                most = max(most, size)
                is_finite &= size <= _MOST
            scale = np.float32(0.0) if is_finite else np.float32(np.nan)
            inverse = np.float32(0.0)
            if is_finite and most > _LEAST:
                scale = most / np.float32(127.0)
                if num_digits > 1:
                    scale = _power_above(scale)
                inverse = unit / scale
            for k in range(CHUNK):
                value = x[t, start + k] * inverse if is_finite else np.float32(0.0)
                whole[k] = np.int32(np.rint(value))
            low, high = np.int32(0), np.int32(0)
            for k in range(CHUNK // 2):
                low += whole[k]
                high += whole[CHUNK // 2 + k]
            for digit in range(num_digits - 1, -1, -1):
                for k in range(CHUNK):
                    last = np.int8(whole[k])
                    digits[chunk, t, digit, k] = last
                    whole[k] = (whole[k] - last) >> 8
            own = scale / unit
            factors[chunk, t, 0] = own
            factors[chunk, t, 1] = np.float32(low + high) * own
            factors[chunk, t, 2] = np.float32(low) * own
            factors[chunk, t, 3] = np.float32(high) * own


@njit(inline="always")
def _power_above(number: np.float32) -> np.float32:
    """Return the least power of two that is not below a positive number."""
    bits = np.float32(number).view(np.int32)
    exponent = (bits >> 23) + (1 if bits & 0x7FFFFF else 0)
    return np.int32(exponent << 23).view(np.float32)
