"""Products with the weights at an address: a function for each type that weights are stored in, all called alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from specdec_kernels.cpu.compiled.calls import Signature, address_of, by_address
from specdec_kernels.cpu.compiled.jit import njit
from specdec_kernels.cpu.loops.blocks import product_of_blocks
from specdec_kernels.cpu.loops.byte_sums import HAS_BYTE_SUMS, product_rounded
from specdec_kernels.cpu.loops.pointer import array_at
from specdec_kernels.cpu.loops.product import multiply_in_team, product_in_team
from specdec_kernels.cpu.loops.quantized import product_quantized
from specdec_kernels.cpu.loops.tile import TILE_WEIGHTS

Floats = npt.NDArray[np.float32]
_MATRIX = types.float32[:, ::1]
_SIGNATURE: Signature = (_MATRIX, types.int64, types.int64, types.boolean, _MATRIX, types.int64)
weigh = by_address(_SIGNATURE)
"""Calls the function at an address with `x [T, K]`, the address of weights `[N, K]`, how many of 4 bits share a scale, whether
`x` is rounded to bfloat16 first (for such weights), `out [T, N]`, to which `x` times the weights is written, and the address
of the team that multiplies."""


def weigher(weights: npt.NDArray[np.generic], is_draft: bool = False) -> int:
    """Return the address of the function for weights of this type.

    Args:
        weights: the weights; for those in blocks their table, see `product_of_blocks`.
        is_draft: products with weights of 4 bits may round `x` to 8 bits, where that is faster.
    """
    function = _WEIGHERS[weights.dtype]
    if is_draft and HAS_BYTE_SUMS and function is _weigh_halves:
        function = _weigh_halves_rounded
    return address_of(function, _SIGNATURE)


@njit(nogil=True, cache=True, error_model="numpy")
def _weigh_float32(x: Floats, address: int, group: int, is_rounded: bool, out: Floats, team: int) -> None:
    product_in_team(team, x, array_at(address, (out.shape[1], x.shape[1]), np.float32), out)


@njit(nogil=True, cache=True, error_model="numpy")
def _weigh_bfloat16(x: Floats, address: int, group: int, is_rounded: bool, out: Floats, team: int) -> None:
    weights = array_at(address, (out.shape[1], x.shape[1]), np.uint16)
    multiply_in_team(team, x, weights, out, is_rounded)


@njit(nogil=True, cache=True, error_model="numpy")
def _weigh_bytes(x: Floats, address: int, group: int, is_rounded: bool, out: Floats, team: int) -> None:
    weights = array_at(address, (out.shape[1], x.shape[1]), np.int8)
    product_quantized(team, x, weights, x.shape[1], out)


@njit(nogil=True, cache=True, error_model="numpy")
def _weigh_halves(x: Floats, address: int, group: int, is_rounded: bool, out: Floats, team: int) -> None:
    weights = array_at(address, (out.shape[1], x.shape[1] // 2), np.uint8)
    product_quantized(team, x, weights, group, out)


@njit(nogil=True, cache=True, error_model="numpy")
def _weigh_halves_rounded(
    x: Floats, address: int, group: int, is_rounded: bool, out: Floats, team: int
) -> None:
    weights = array_at(address, (out.shape[1], x.shape[1] // 2), np.uint8)
    if out.shape[1] < TILE_WEIGHTS:
        product_quantized(team, x, weights, group, out)
    else:
        product_rounded(team, x, weights, group, out)


@njit(nogil=True, cache=True, error_model="numpy")
def _weigh_blocks(x: Floats, address: int, group: int, is_rounded: bool, out: Floats, team: int) -> None:
    product_of_blocks(team, x, address, group, out)


_WEIGHERS: Mapping[np.dtype[Any], Any] = {
    np.dtype(np.float32): _weigh_float32,
    np.dtype(np.uint16): _weigh_bfloat16,
    np.dtype(np.int8): _weigh_bytes,
    np.dtype(np.uint8): _weigh_halves,
    np.dtype(np.int64): _weigh_blocks,
}
