"""All layers of a small pass in one compiled call."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specdec_kernels.cpu.compiled.arrays import add_rows, copy_rows
from specdec_kernels.cpu.compiled.jit import njit
from specdec_kernels.cpu.compiled.team import size_of
from specdec_kernels.cpu.loops.attention import scratch_size
from specdec_kernels.cpu.loops.cached import store_and_attend
from specdec_kernels.cpu.loops.elementwise import activate, add_norm, norm, norm_heads, scale
from specdec_kernels.cpu.loops.frame import Column, Entry, Factor, Number, Tables
from specdec_kernels.cpu.loops.memory import floats
from specdec_kernels.cpu.loops.pointer import array_at
from specdec_kernels.cpu.loops.weigh import weigh

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]


# Inlined, like other functions that only compiled code calls: numba compiles a callee again within each caller.
@njit(inline="always")
def run_layers(
    x: Floats,
    entry: Floats,
    tables: Tables,
    num_slots: int,
    positions: Ints,
    slots: Ints,
    segments: Ints,
    visible: npt.NDArray[np.bool_],
    aux_places: Ints,
    aux: Floats,
    normed: Floats,
) -> None:
    """Run the layers; at the end `normed` holds the final norm's output, or `x` if there is no final norm.

    Args:
        x: `[T, H]` residual stream, overwritten.
        entry: `[T, W]` the first layer's attention input; W is H, or 2 H for heads without a join; may be `normed`.
        tables: the model.
        num_slots: slots of the cache.
        positions: `[T]`.
        slots: `[T]`.
        segments: `[5, S]`, see `Table`.
        visible: `[T, W]` for trees, or empty; see `Visible`.
        aux_places: `[L + 1]` index in `aux` at which each layer's input and the last one's output are stored, -1 for
            none.
        aux: `[A, T, H]`, written.
        normed: `[T, H]`, written.
    """
    num_rows, hidden = x.shape
    table, frame = tables.layers, tables.frame
    weigher, group, is_rounded = frame[Entry.WEIGH_LAYERS], frame[Entry.GROUP], frame[Entry.IS_ROUNDED] != 0
    team = frame[Entry.TEAM]
    epsilon, head_epsilon = tables.numbers[Number.EPSILON], tables.numbers[Number.HEAD_EPSILON]
    is_centred = frame[Entry.ARE_NORMS_CENTRED] != 0
    most_joined, most_attended, most_activated, most_scores = _largest(table, segments, hidden, size_of(team))
    all_queries = np.empty(num_rows * most_attended, np.float32)
    all_attended = np.empty(num_rows * most_attended, np.float32)
    all_activated = np.empty(num_rows * most_activated, np.float32)
    joined = np.empty(num_rows * most_joined, np.float32)
    scratch = floats(most_scores)
    delta = joined[: num_rows * hidden].reshape(num_rows, hidden)
    for i in range(table.shape[0]):
        place = aux_places[i]
        if place >= 0:
            copy_rows(x, aux[place])
        row, factors = table[i], tables.factors[i]
        num_heads, num_kv_heads, dim = row[Column.NUM_HEADS], row[Column.NUM_KV_HEADS], row[Column.HEAD_DIM]
        num_joined = num_heads + (1 if row[Column.ARE_KEYS_VALUES] else 2) * num_kv_heads
        heads = joined[: num_rows * num_joined * dim].reshape(num_rows, num_joined * dim)
        query = all_queries[: num_rows * num_heads * dim].reshape(num_rows, num_heads, dim)
        attended = all_attended[: num_rows * num_heads * dim].reshape(num_rows, num_heads, dim)
        intermediate = row[Column.INTERMEDIATE]
        gate_up = joined[: num_rows * 2 * intermediate].reshape(num_rows, 2 * intermediate)
        activated = all_activated[: num_rows * intermediate].reshape(num_rows, intermediate)
        if i == 0:
            weigh(weigher, (entry, row[Column.QKV], group, is_rounded, heads, team))
        else:
            weigh(weigher, (normed, row[Column.QKV], group, is_rounded, heads, team))
        add_bias(heads, row[Column.QKV_BIAS])
        if row[Column.JOINT_NORMS]:
            weights = array_at(row[Column.JOINT_NORMS], ((num_heads + num_kv_heads) * dim,), np.float32)
            norm_heads(heads, num_heads * dim, weights, head_epsilon)
        rotary_shape = frame[Entry.NUM_POSITIONS], row[Column.ROTARY_WIDTH]
        store_and_attend(frame[Entry.ATTEND], (
            heads.reshape(num_rows, num_joined, dim), array_at(row[Column.COS], rotary_shape, np.float32),
            array_at(row[Column.SIN], rotary_shape, np.float32), row[Column.IS_INTERLEAVED] != 0, positions, slots,
            array_at(row[Column.HEAD_NORMS], (row[Column.NUM_HEAD_NORMS], dim), np.float32), head_epsilon,
            row[Column.KEYS], row[Column.VALUES], num_slots, num_kv_heads, frame[Entry.SCORE], frame[Entry.BLEND], segments,
            visible, row[Column.WINDOW], row[Column.NUM_FIRST], np.float32(factors[Factor.SCALING]),
            np.float32(factors[Factor.SOFTCAP]), scratch, query, attended, team,
        ))  # fmt: skip
        weigh(
            weigher,
            (attended.reshape(num_rows, num_heads * dim), row[Column.OUT], group, is_rounded, delta, team),
        )
        add_bias(delta, row[Column.OUT_BIAS])
        _finish(delta, row[Column.ATTENDED_NORM], epsilon, is_centred, factors[Factor.RESIDUAL_SCALE])
        if row[Column.IS_PARALLEL]:
            add_rows(delta, x)
        else:
            _add(x, delta, row[Column.MLP_NORM], epsilon, is_centred, normed)
        weigh(weigher, (normed, row[Column.GATE_UP], group, is_rounded, gate_up, team))
        add_bias(gate_up, row[Column.GATE_UP_BIAS])
        activate(gate_up, row[Column.IS_GELU] != 0, activated)
        weigh(weigher, (activated, row[Column.DOWN], group, is_rounded, delta, team))
        add_bias(delta, row[Column.DOWN_BIAS])
        _finish(delta, row[Column.MLP_OUT_NORM], epsilon, is_centred, factors[Factor.RESIDUAL_SCALE])
        if factors[Factor.OUTPUT_SCALE] != 1.0:
            scale(x, factors[Factor.OUTPUT_SCALE])
            scale(delta, factors[Factor.OUTPUT_SCALE])
        _add(x, delta, row[Column.NEXT_NORM], epsilon, is_centred, normed)
    if aux_places[-1] >= 0:
        copy_rows(x, aux[aux_places[-1]])


@njit(nogil=True, error_model="numpy")
def _largest(table: Ints, segments: Ints, hidden: int, num_threads: int) -> tuple[int, int, int, int]:
    """Return the most numbers of a row that any layer needs: joined products, queries, activations; and scores of a pass."""
    joined, attended, activated, scores = hidden, 0, 0, 0
    for i in range(table.shape[0]):
        row = table[i]
        num_heads, num_kv_heads, dim = row[Column.NUM_HEADS], row[Column.NUM_KV_HEADS], row[Column.HEAD_DIM]
        joined = max(joined, (num_heads + 2 * num_kv_heads) * dim, 2 * row[Column.INTERMEDIATE])
        attended = max(attended, num_heads * dim)
        activated = max(activated, row[Column.INTERMEDIATE])
        scores = max(scores, scratch_size(segments, num_heads, num_kv_heads, num_threads))
    return joined, attended, activated, scores


@njit(nogil=True, error_model="numpy")
def _finish(delta: Floats, norm_address: int, epsilon: float, is_centred: bool, factor: float) -> None:
    """Normalize and scale what is added to the residual stream, in place, where a layer does so."""
    if norm_address:
        norm(delta, array_at(norm_address, (delta.shape[1],), np.float32), epsilon, is_centred, delta)
    if factor != 1.0:
        scale(delta, factor)


@njit(nogil=True, error_model="numpy")
def _add(
    x: Floats, delta: Floats, norm_address: int, epsilon: float, is_centred: bool, normed: Floats
) -> None:
    """Add to the residual stream, and write the input of the next products."""
    if norm_address:
        add_norm(x, delta, array_at(norm_address, (x.shape[1],), np.float32), epsilon, is_centred, normed)
    else:
        add_rows(delta, x)
        copy_rows(x, normed)


@njit(nogil=True, cache=True, error_model="numpy")
def add_bias(out: Floats, address: int) -> None:
    """Add the bias `[N]` at `address` to every row of `out [T, N]`; does nothing for address 0."""
    if address:
        bias = array_at(address, (out.shape[1],), np.float32)
        for t in range(out.shape[0]):
            for d in range(out.shape[1]):
                out[t, d] += bias[d]
