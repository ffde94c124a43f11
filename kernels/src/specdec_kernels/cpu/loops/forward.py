"""A whole pass of a small model or head in one compiled call: embed, run the layers, project."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specdec_kernels.cpu.compiled.arrays import copy_rows
from specdec_kernels.cpu.compiled.jit import njit
from specdec_kernels.cpu.compiled.jobs import call_of
from specdec_kernels.cpu.compiled.math import widen
from specdec_kernels.cpu.compiled.team import run_with_team
from specdec_kernels.cpu.loops.blocks import look_up_blocks
from specdec_kernels.cpu.loops.elementwise import finish_logits, norm
from specdec_kernels.cpu.loops.frame import EmbeddingForm, Entry, Number, Tables
from specdec_kernels.cpu.loops.pointer import array_at
from specdec_kernels.cpu.loops.product import Weights
from specdec_kernels.cpu.loops.stack import Floats, Ints, add_bias, run_layers
from specdec_kernels.cpu.loops.weigh import weigh


@njit(nogil=True, cache=True, error_model="numpy")
def run_pass(
    tokens: Ints, features: Floats, tables: Tables, num_slots: int, positions: Ints, slots: Ints, segments: Ints,
    visible: npt.NDArray[np.bool_], aux_places: Ints, aux: Floats, logits_rows: Ints, states: Floats, logits: Floats,
) -> None:  # fmt: skip
    """Run a pass with the threads of the model's team; see `run_in_team`. The arrays are the caller's.

    Raises:
        MemoryError: if there is not enough for intermediate results.
    """
    run_with_team(tables.frame[Entry.TEAM], call_of(run_in_team, (
        tokens, features, tables, num_slots, positions, slots, segments, visible, aux_places, aux, logits_rows, states, logits,
    )))  # fmt: skip


# Kept for `run_chain`, which has it too.
@njit(nogil=True, cache=True, no_cpython_wrapper=True, error_model="numpy")
def run_in_team(
    tokens: Ints,
    features: Floats,
    tables: Tables,
    num_slots: int,
    positions: Ints,
    slots: Ints,
    segments: Ints,
    visible: npt.NDArray[np.bool_],
    aux_places: Ints,
    aux: Floats,
    logits_rows: Ints,
    states: Floats,
    logits: Floats,
) -> None:
    """Run a pass on one of the threads of the model's team.

    Args:
        tokens: `[T]`.
        features: `[T, H]` for heads, else empty.
        tables: see `run_layers`, like the next seven.
        num_slots: ditto.
        positions: ditto.
        slots: ditto.
        segments: ditto.
        visible: ditto.
        aux_places: ditto.
        aux: ditto.
        logits_rows: `[R]` rows whose logits are needed.
        states: `[T, H]` the final norm's output, or its input (`Entry.IS_NORMED_STATE`); written.
        logits: `[R, V]`, written.
    """
    frame, numbers = tables.frame, tables.numbers
    group, is_rounded = frame[Entry.GROUP], frame[Entry.IS_ROUNDED] != 0
    num_rows, hidden = tokens.shape[0], frame[Entry.HIDDEN]
    is_centred = frame[Entry.ARE_NORMS_CENTRED] != 0
    x = np.empty((num_rows, hidden), np.float32)
    normed = np.empty((num_rows, hidden), np.float32)
    shape, embed_scale = (frame[Entry.NUM_IDS], hidden), np.float32(numbers[Number.EMBED_SCALE])
    if frame[Entry.EMBEDDING_FORM] == EmbeddingForm.BLOCKS:
        look_up_blocks(tokens, frame[Entry.EMBEDDING], embed_scale, x)
    elif frame[Entry.EMBEDDING_FORM] == EmbeddingForm.HALVES:
        _look_up(tokens, array_at(frame[Entry.EMBEDDING], shape, np.uint16), embed_scale, x)
    else:
        _look_up(tokens, array_at(frame[Entry.EMBEDDING], shape, np.float32), embed_scale, x)
    if frame[Entry.READS_FEATURES]:
        entry = _join(x, features, tables, normed)
    else:
        _norm_or_copy(x, frame[Entry.FIRST_NORM], numbers, is_centred, normed)
        entry = normed
    run_layers(
        x, entry, tables, num_slots, positions, slots, segments, visible, aux_places, aux, normed,
    )  # fmt: skip
    copy_rows(normed if frame[Entry.IS_NORMED_STATE] else x, states)
    if _are_all(logits_rows, num_rows):
        weigh(
            frame[Entry.WEIGH_HEAD], (normed, frame[Entry.HEAD], group, is_rounded, logits, frame[Entry.TEAM])
        )
    else:
        weigh(
            frame[Entry.WEIGH_HEAD],
            (normed[logits_rows], frame[Entry.HEAD], group, is_rounded, logits, frame[Entry.TEAM]),
        )
    add_bias(logits, frame[Entry.HEAD_BIAS])
    finish_logits(logits, numbers[Number.LOGITS_SCALE], numbers[Number.LOGITS_SOFTCAP])


@njit(inline="always")
def _are_all(rows: Ints, num_rows: int) -> bool:
    """Whether rows are all there are, in order."""
    if rows.shape[0] != num_rows:
        return False
    num_in_place = 0
    for row in range(num_rows):
        num_in_place += rows[row] == row
    return num_in_place == num_rows


@njit(inline="always")
def _look_up(tokens: Ints, embedding: Weights, factor: np.float32, x: Floats) -> None:
    """Write the embeddings of tokens, times a factor, to `x [T, H]`."""
    for row in range(tokens.shape[0]):
        for d in range(x.shape[1]):
            x[row, d] = widen(embedding[tokens[row], d]) * factor


@njit(inline="always")
def _join(x: Floats, features: Floats, tables: Tables, normed: Floats) -> Floats:
    """Return the first layer's input `[T, W]` of a head; turns `x [T, H]`, the embeddings, into the residual stream."""
    frame, numbers = tables.frame, tables.numbers
    is_centred = frame[Entry.ARE_NORMS_CENTRED] != 0
    num_rows, hidden = x.shape
    pair = np.empty((num_rows, 2 * hidden), np.float32)
    embedded = pair[:, hidden:] if frame[Entry.IS_FEATURE_FIRST] else pair[:, :hidden]
    feature = pair[:, :hidden] if frame[Entry.IS_FEATURE_FIRST] else pair[:, hidden:]
    _norm_or_copy(x, frame[Entry.EMBED_NORM], numbers, is_centred, embedded)
    _norm_or_copy(features, frame[Entry.FEATURE_NORM], numbers, is_centred, feature)
    if not frame[Entry.JOIN]:
        if frame[Entry.IS_NORMED_RESIDUAL]:
            copy_rows(feature, x)
        else:
            copy_rows(features, x)
        return pair
    weigh(
        frame[Entry.WEIGH_LAYERS],
        (pair, frame[Entry.JOIN], frame[Entry.GROUP], frame[Entry.IS_ROUNDED] != 0, x, frame[Entry.TEAM]),
    )
    add_bias(x, frame[Entry.JOIN_BIAS])
    _norm_or_copy(x, frame[Entry.FIRST_NORM], numbers, is_centred, normed)
    return normed


@njit(nogil=True, cache=True, error_model="numpy")
def _norm_or_copy(
    x: Floats, address: int, numbers: npt.NDArray[np.float64], is_centred: bool, out: Floats
) -> None:
    """Write the norm of `x [T, H]` with the weight at an address to `out`; for address 0, write a copy of `x`."""
    if address:
        norm(x, array_at(address, (x.shape[1],), np.float32), numbers[Number.EPSILON], is_centred, out)
    else:
        copy_rows(x, out)
