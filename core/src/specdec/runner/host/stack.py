"""All layers of a small pass in one compiled call."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt
from numba import njit

from specdec.runner.host.attention import attend
from specdec.runner.host.elementwise import add_norm, norm, rotate_and_store, silu_multiply
from specdec.runner.host.pointer import array_at
from specdec.runner.host.product import Weights, product
from specdec.runner.kv_cache import Stored

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


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
    """Norm of the next layer's input; of the last layer the final norm."""
    HEAD_NORMS = 10
    KEYS = 11
    VALUES = 12
    WINDOW = 13


@njit(nogil=True, cache=True, error_model="numpy")
def run_layers(
    x: Floats,
    table: Ints,
    first_norm: Floats,
    epsilon: float,
    head_epsilon: float,
    scaling: np.float32,
    num_kv_heads: int,
    like: Weights,
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
    query: Floats,
    attended: Floats,
    activated: Floats,
    normed: Floats,
) -> None:
    """Run layers of one shape; `normed` holds the final norm's output at the end.

    Args:
        x: `[T, H]` residual stream, overwritten.
        table: `[L, len(Column)]`.
        first_norm: `[H]` weight of the first layer's input norm.
        epsilon: of the norms over the hidden size.
        head_epsilon: of query and key norms.
        scaling: factor on attention scores.
        num_kv_heads: Hkv.
        like: any array of the weights' type.
        stored_like: any array of the cache's type.
        num_slots: slots of the cache.
        cos: `[P, D]` by position.
        sin: `[P, D]` by position, negated in its first half.
        positions: `[T]`.
        slots: `[T]`.
        segments: `[4, S]`: first row, number of rows, slot of position 0, rows in the cache before the pass.
        visible: `[T, W]` of trees, or empty; see `HostSegments`.
        aux_places: `[L]` where the input of each layer goes in `aux`, -1 for nowhere.
        aux: `[A, T, H]`, written.
        query: `[T, Hq, D]` scratch.
        attended: `[T, Hq, D]` scratch.
        activated: `[T, I]` scratch.
        normed: `[T, H]`, written.
    """
    num_rows, hidden = x.shape
    num_heads, dim = query.shape[1], query.shape[2]
    intermediate = activated.shape[1]
    width = (num_heads + 2 * num_kv_heads) * dim
    joined = np.empty((num_rows, max(width, 2 * intermediate, hidden)), np.float32).reshape(-1)
    heads = joined[: num_rows * width].reshape(num_rows, width)
    gate_up = joined[: num_rows * 2 * intermediate].reshape(num_rows, 2 * intermediate)
    delta = joined[: num_rows * hidden].reshape(num_rows, hidden)
    flat = attended.reshape(num_rows, num_heads * dim)
    norm(x, first_norm, epsilon, normed)
    for i in range(table.shape[0]):
        place = aux_places[i]
        if place >= 0:
            aux[place] = x
        row = table[i]
        product(normed, array_at(row[0], (width, hidden), like), heads)
        _add_bias(heads, row[4])
        num_norms = 2 if row[10] else 0
        keys = array_at(row[11], (num_slots, num_kv_heads, dim), stored_like)
        values = array_at(row[12], (num_slots, num_kv_heads, dim), stored_like)
        rotate_and_store(
            heads.reshape(num_rows, num_heads + 2 * num_kv_heads, dim), cos, sin, positions, slots,
            array_at(row[10], (num_norms, dim), x), head_epsilon, keys, values, query,
        )  # fmt: skip
        attend(
            query, keys, values, segments[0], segments[1], segments[2], segments[3], visible, row[13], scaling, attended
        )  # fmt: skip
        product(flat, array_at(row[1], (hidden, num_heads * dim), like), delta)
        _add_bias(delta, row[5])
        add_norm(x, delta, array_at(row[8], (hidden,), x), epsilon, normed)
        product(normed, array_at(row[2], (2 * intermediate, hidden), like), gate_up)
        _add_bias(gate_up, row[6])
        silu_multiply(gate_up, activated)
        product(activated, array_at(row[3], (hidden, intermediate), like), delta)
        _add_bias(delta, row[7])
        add_norm(x, delta, array_at(row[9], (hidden,), x), epsilon, normed)


@njit(nogil=True, cache=True, error_model="numpy")
def _add_bias(out: Floats, address: int) -> None:
    """Add a bias `[N]` at `address` to every row of `out [T, N]`; nothing for address 0."""
    if address:
        bias = array_at(address, (out.shape[1],), out)
        for t in range(out.shape[0]):
            for d in range(out.shape[1]):
                out[t, d] += bias[d]
