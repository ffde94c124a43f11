"""Logits of single ids by the embedding, for a model whose output projection is tied to it, not in blocks."""

from __future__ import annotations

import numpy as np

from specdec_kernels.cpu.compiled.jit import njit
from specdec_kernels.cpu.compiled.math import widen
from specdec_kernels.cpu.loops.elementwise import finish_logits
from specdec_kernels.cpu.loops.frame import EmbeddingForm, Entry, Number, Tables
from specdec_kernels.cpu.loops.pointer import array_at
from specdec_kernels.cpu.loops.product import Weights
from specdec_kernels.cpu.loops.stack import Floats, Ints


@njit(nogil=True, cache=True, error_model="numpy")
def logits_of(state: Floats, ids: Ints, tables: Tables, logits: Floats) -> None:
    """Write the logits `[E]` of some ids after a state `[H]`, the final norm's output."""
    frame, numbers = tables.frame, tables.numbers
    shape = (frame[Entry.NUM_IDS], frame[Entry.HIDDEN])
    if frame[Entry.EMBEDDING_FORM] == EmbeddingForm.HALVES:
        _products(state, array_at(frame[Entry.EMBEDDING], shape, np.uint16), ids, logits)
    else:
        _products(state, array_at(frame[Entry.EMBEDDING], shape, np.float32), ids, logits)
    finish_logits(
        logits.reshape(1, logits.shape[0]), numbers[Number.LOGITS_SCALE], numbers[Number.LOGITS_SOFTCAP]
    )


@njit(nogil=True, cache=True, fastmath=True, error_model="numpy")
def _products(state: Floats, embedding: Weights, ids: Ints, out: Floats) -> None:
    for place in range(ids.shape[0]):
        row, total = embedding[ids[place]], np.float32(0.0)
        for d in range(state.shape[0]):
            total += widen(row[d]) * state[d]
        out[place] = total
