"""What a layer does with its rows of the cache: a function for each type that a cache stores, both called alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from specdec_kernels.cpu.compiled.calls import Signature, address_of, by_address
from specdec_kernels.cpu.compiled.jit import njit
from specdec_kernels.cpu.loops.attention import attend
from specdec_kernels.cpu.loops.elementwise import rotate_and_store
from specdec_kernels.cpu.loops.pointer import array_at
from specdec_kernels.cpu.stored import Stored

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
_FLOATS = types.float32[::1], types.float32[:, ::1], types.float32[:, :, ::1]
_SIGNATURE: Signature = (
    *(
        _FLOATS[2],
        _FLOATS[1],
        _FLOATS[1],
        types.boolean,
        types.int64[::1],
        types.int64[::1],
        _FLOATS[1],
        types.float64,
    ),
    *(types.int64, types.int64, types.int64, types.int64, types.int64, types.int64),
    *(types.int64[:, ::1], types.boolean[:, ::1], types.int64, types.int64, types.float32, types.float32),
    *(_FLOATS[0], _FLOATS[2], _FLOATS[2], types.int64),
)
store_and_attend = by_address(_SIGNATURE)
"""Calls the function at an address with the arguments of `rotate_and_store` before its cache rows, the addresses and the shape
of the layer's keys and values, the remaining ones of `attend`, and the team."""


def attender(stored: Stored) -> int:
    """Return the address of the function for cache rows of this type."""
    return address_of(_attend_bfloat16 if stored.dtype == np.uint16 else _attend_float32, _SIGNATURE)


@njit(nogil=True, cache=True, error_model="numpy")
def _attend_float32(
    heads: Floats, cos: Floats, sin: Floats, is_interleaved: bool, positions: Ints, slots: Ints, head_norms: Floats,
    epsilon: float, keys: int, values: int, num_slots: int, num_kv_heads: int, score: int, blend: int, segments: Ints,
    visible: npt.NDArray[np.bool_], window: int, num_first: int, scaling: np.float32, softcap: np.float32, scratch: Floats,
    query: Floats, out: Floats, team: int,
) -> None:  # fmt: skip
    _attend(
        heads, cos, sin, is_interleaved, positions, slots, head_norms, epsilon, keys, values, num_slots, num_kv_heads,
        np.float32, score, blend, segments, visible, window, num_first, scaling, softcap, scratch,
        query, out, team,
    )  # fmt: skip


@njit(nogil=True, cache=True, error_model="numpy")
def _attend_bfloat16(
    heads: Floats, cos: Floats, sin: Floats, is_interleaved: bool, positions: Ints, slots: Ints, head_norms: Floats,
    epsilon: float, keys: int, values: int, num_slots: int, num_kv_heads: int, score: int, blend: int, segments: Ints,
    visible: npt.NDArray[np.bool_], window: int, num_first: int, scaling: np.float32, softcap: np.float32, scratch: Floats,
    query: Floats, out: Floats, team: int,
) -> None:  # fmt: skip
    _attend(
        heads, cos, sin, is_interleaved, positions, slots, head_norms, epsilon, keys, values, num_slots, num_kv_heads,
        np.uint16, score, blend, segments, visible, window, num_first, scaling, softcap, scratch,
        query, out, team,
    )  # fmt: skip


@njit(inline="always")
def _attend(
    heads: Floats, cos: Floats, sin: Floats, is_interleaved: bool, positions: Ints, slots: Ints, head_norms: Floats,
    epsilon: float, keys: int, values: int, num_slots: int, num_kv_heads: int, dtype: Any, score: int, blend: int,
    segments: Ints, visible: npt.NDArray[np.bool_], window: int, num_first: int, scaling: np.float32, softcap: np.float32,
    scratch: Floats, query: Floats, out: Floats, team: int,
) -> None:  # fmt: skip
    shape = num_slots, num_kv_heads, query.shape[2]
    all_keys, all_values = array_at(keys, shape, dtype), array_at(values, shape, dtype)
    rotate_and_store(
        heads, cos, sin, is_interleaved, positions, slots, head_norms, epsilon, all_keys, all_values, query
    )
    attend(
        team, query, keys, values, num_slots, num_kv_heads, score, blend, segments, visible, window, num_first, scaling,
        softcap, scratch, out,
    )  # fmt: skip
