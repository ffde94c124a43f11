"""Scalar functions that the compiler can run on whole vectors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

_F = np.float32
LOG2E, LN2_HIGH, LN2_LOW = _F(1.44269504), _F(0.693359375), _F(-2.12194440e-4)
LOWEST = _F(-87.0)
EXP_TERMS = tuple(
    map(
        _F,
        (
            1.9875691500e-4,
            1.3981999507e-3,
            8.3334519073e-3,
            4.1665795894e-2,
            1.6666665459e-1,
            5.0000001201e-1,
        ),
    )
)
"""Coefficients of e^x between -ln 2 / 2 and ln 2 / 2, after the terms 1 + x, highest power first."""


@njit(inline="always", fastmath=True)
def fast_exp(x: np.float32) -> np.float32:
    """Return e^x within about 1e-7 relative, for x up to 88; below -87 it returns e^-87.

    Range reduction and polynomial as in Cephes (Moshier, `expf`), without a branch, so that loops over it vectorise.
    """
    x = max(x, LOWEST)
    n = np.floor(x * LOG2E + _F(0.5))
    r = x - n * LN2_HIGH - n * LN2_LOW
    p = EXP_TERMS[0]
    p = p * r + EXP_TERMS[1]
    p = p * r + EXP_TERMS[2]
    p = p * r + EXP_TERMS[3]
    p = p * r + EXP_TERMS[4]
    p = p * r + EXP_TERMS[5]
    p = p * r * r + r + _F(1.0)
    power = np.int32((np.int32(n) + np.int32(127)) << np.int32(23))
    result: np.float32 = p * power.view(np.float32)
    return result


def exp(x: Any) -> Any:
    """Return e^x for x up to 0: fast for float32, with results below e^-87 set to 0, and exact for float64."""
    raise NotImplementedError("compiled code only")


def widen(number: Any) -> Any:
    """Return a stored number as float32; uint16 holds a bfloat16, the upper half of a float32."""
    raise NotImplementedError("compiled code only")


def narrow(number: Any, like: Any) -> Any:
    """Return a float32 in the form of `like`; rounding to bfloat16 is to nearest, ties to even."""
    raise NotImplementedError("compiled code only")


@overload(exp, strict=False)
def _overload_exp(x: types.Type) -> Callable[[Any], Any]:
    if x == types.float32:
        return lambda x: fast_exp(x) if x > LOWEST else _F(0.0)
    return lambda x: math.exp(x)


@overload(widen, strict=False)
def _overload_widen(number: types.Type) -> Callable[[Any], Any]:
    if number == types.uint16:
        return lambda number: np.uint32(np.uint32(number) << np.uint32(16)).view(np.float32)
    return lambda number: number


@overload(narrow, strict=False)
def _overload_narrow(number: types.Type, like: types.Type) -> Callable[[Any, Any], Any]:
    if like == types.uint16:
        return lambda number, like: _round_to_bfloat16(np.float32(number))
    return lambda number, like: number


@njit(inline="always")
def _round_to_bfloat16(number: np.float32) -> np.uint16:
    bits = number.view(np.uint32)
    even = np.uint32((bits >> np.uint32(16)) & np.uint32(1))
    rounded = np.uint32(bits + np.uint32(0x7FFF) + even)
    return np.uint16(rounded >> np.uint32(16))
