"""All layers of a small pass in one compiled call."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from specdec_kernels.cpu.compiled.jit import njit
from specdec_kernels.cpu.loops.attention import attend, scratch_for
from specdec_kernels.cpu.loops.elementwise import add_norm, rotate_and_store, silu_multiply
from specdec_kernels.cpu.loops.frame import Likes, Number, Part
from specdec_kernels.cpu.loops.pointer import array_at
from specdec_kernels.cpu.loops.weigh import weigh
from specdec_kernels.cpu.stored import Stored

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]


class Column(IntEnum):
    """Columns of the table of a stack: addresses (0 where a layer has none), then the layer's window."""

    QKV = 0
    OUT = 1
    GATE_UP = 2
    DOWN = 3
    QKV_BIAS = 4
    OUT_BIAS = 5
    GATE_UP_BIAS = 6
    DOWN_BIAS = 7
    POST_NORM = 8
    NEXT_NORM = 9
    """Norm of the next layer's input; for the last layer the final norm, if there is one."""
    HEAD_NORMS = 10
    KEYS = 11
    VALUES = 12
    WINDOW = 13


# Inlined, like other functions that only compiled code calls: numba compiles a callee again within each caller.
@njit(inline="always")
def run_layers(
    x: Floats,
    entry: Floats,
    table: Ints,
    frame: Ints,
    numbers: Doubles,
    likes: Likes,
    stored_like: Stored,
    num_slots: int,
    cos: Floats,
    sin: Floats,
    positions: Ints,
    slots: Ints,
    segments: Ints,
    visible: npt.NDArray[np.bool_],
    aux_places: Ints,
    aux: Floats,
    normed: Floats,
) -> None:
    """Run layers of one shape; at the end `normed` holds the final norm's output, or `x` if there is no final norm.

    Args:
        x: `[T, H]` residual stream, overwritten.
        entry: `[T, W]` the first layer's attention input; W is H, or 2 H for heads without a join; may be `normed`.
        table: `[L, len(Column)]`.
        frame: `[len(Part)]`.
        numbers: `[len(Number)]`.
        likes: arrays of the weights' types.
        stored_like: any array of the cache's type.
        num_slots: slots of the cache.
        cos: `[P, D]` by position.
        sin: `[P, D]` by position, negated in its first half.
        positions: `[T]`.
        slots: `[T]`.
        segments: `[5, S]`, see `SegmentArrays`.
        visible: `[T, W]` for trees, or empty; see `SegmentArrays`.
        aux_places: `[L + 1]` index in `aux` at which each layer's input and the last one's output are stored, -1 for
            none.
        aux: `[A, T, H]`, written.
        normed: `[T, H]`, written.
    """
    num_rows, hidden = x.shape
    num_heads, dim = frame[Part.NUM_HEADS], frame[Part.HEAD_DIM]
    num_kv_heads, intermediate = frame[Part.NUM_KV_HEADS], frame[Part.INTERMEDIATE]
    epsilon, head_epsilon = numbers[Number.EPSILON], numbers[Number.HEAD_EPSILON]
    scaling = np.float32(numbers[Number.SCALING])
    width = (num_heads + 2 * num_kv_heads) * dim
    query = np.empty((num_rows, num_heads, dim), np.float32)
    attended = np.empty((num_rows, num_heads, dim), np.float32)
    activated = np.empty((num_rows, intermediate), np.float32)
    scratch = scratch_for(segments, num_heads, num_kv_heads)
    joined = np.empty((num_rows, max(width, 2 * intermediate, hidden)), np.float32).reshape(-1)
    heads = joined[: num_rows * width].reshape(num_rows, width)
    gate_up = joined[: num_rows * 2 * intermediate].reshape(num_rows, 2 * intermediate)
    delta = joined[: num_rows * hidden].reshape(num_rows, hidden)
    flat = attended.reshape(num_rows, num_heads * dim)
    for i in range(table.shape[0]):
        place = aux_places[i]
        if place >= 0:
            aux[place] = x
        row = table[i]
        if i == 0:
            weigh(entry, row[Column.QKV], likes.layers, frame, heads)
        else:
            weigh(normed, row[Column.QKV], likes.layers, frame, heads)
        add_bias(heads, row[Column.QKV_BIAS])
        num_norms = 2 if row[Column.HEAD_NORMS] else 0
        keys = array_at(row[Column.KEYS], (num_slots, num_kv_heads, dim), stored_like)
        values = array_at(row[Column.VALUES], (num_slots, num_kv_heads, dim), stored_like)
        rotate_and_store(
            heads.reshape(num_rows, num_heads + 2 * num_kv_heads, dim), cos, sin, positions, slots,
            array_at(row[Column.HEAD_NORMS], (num_norms, dim), x), head_epsilon, keys, values, query,
        )  # fmt: skip
        attend(query, keys, values, segments, visible, row[Column.WINDOW], scaling, scratch, attended)
        weigh(flat, row[Column.OUT], likes.layers, frame, delta)
        add_bias(delta, row[Column.OUT_BIAS])
        add_norm(x, delta, array_at(row[Column.POST_NORM], (hidden,), x), epsilon, normed)
        weigh(normed, row[Column.GATE_UP], likes.layers, frame, gate_up)
        add_bias(gate_up, row[Column.GATE_UP_BIAS])
        silu_multiply(gate_up, activated)
        weigh(activated, row[Column.DOWN], likes.layers, frame, delta)
        add_bias(delta, row[Column.DOWN_BIAS])
        if row[Column.NEXT_NORM]:
            add_norm(x, delta, array_at(row[Column.NEXT_NORM], (hidden,), x), epsilon, normed)
        else:
            x += delta
            normed[:] = x
    if aux_places[-1] >= 0:
        aux[aux_places[-1]] = x


@njit(nogil=True, cache=True, error_model="numpy")
def add_bias(out: Floats, address: int) -> None:
    """Add the bias `[N]` at `address` to every row of `out [T, N]`; does nothing for address 0."""
    if address:
        bias = array_at(address, (out.shape[1],), out)
        for t in range(out.shape[0]):
            for d in range(out.shape[1]):
                out[t, d] += bias[d]
