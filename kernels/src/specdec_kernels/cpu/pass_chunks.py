"""Cuts a pass of any length into pieces that compiled passes run one after another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from specdec_kernels.cpu.loops.segments import (
    MAX_PASS_ROWS,
    MAX_ROWS,
    Table,
    Visible,
    is_short,
    segment_arrays,
)
from specdec_kernels.cpu.stack import CompiledStack, Rotary
from specdec_runtime.interfaces import KVCache, PackedBatch

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
_PIECE_ROWS = 256
"""Rows per piece. Each piece reads all weights; with this many rows, computation far outweighs reading them."""
_MAX_WEIGHT_BYTES, _LEAST_ROWS = 64 * 2**20, 20
"""If compiled products are the fastest only up to fewer rows than a piece has, but for at least 20, pieces are still used
for weights small enough to stay in a processor cache."""
_MAX_THREADS = 16
"""The elementwise loops between products run on one thread; with more threads they would take as long as the products
(estimated)."""


@dataclass(frozen=True, slots=True)
class PassChunk:
    """Some rows of a pass."""

    start: int
    end: int
    table: Table
    """The segments of these rows, with rows counted from `start`."""
    visible: Visible


def supports_chunks(stack: CompiledStack) -> bool:
    """Return whether compiled pieces are the fastest way for long passes.

    SmolLM2-135M in bfloat16, prompts of 40 / 100 / 256 / 1,000 tokens: 34 / 68 / 168 / 734 ms, against 51 / 94 / 203 / 961
    with eager torch; in float32 58 / 125 / 304 / 1,277, against 71 / 144 / 337 / 1,682 with oneDNN (2 cores, Zen 5).
    """
    if stack.max_rows >= _PIECE_ROWS and torch.get_num_threads() <= _MAX_THREADS:
        return True
    return stack.max_rows >= _LEAST_ROWS and stack.num_weight_bytes <= _MAX_WEIGHT_BYTES


def chunks_of(stack: CompiledStack, batch: PackedBatch, *, supports_chunks: bool) -> list[PassChunk] | None:
    """Return the pieces of a pass if compiled passes are the fastest way to run it, else None."""
    num_rows = batch.token_ids.shape[0]
    if num_rows <= min(stack.max_rows, MAX_PASS_ROWS) and is_short(batch):
        return [PassChunk(0, num_rows, *segment_arrays(batch))]
    return in_chunks(batch) if supports_chunks else None


def in_chunks(batch: PackedBatch) -> list[PassChunk]:
    """Cut a pass of any length into pieces; a row never attends to rows of a later piece."""
    whole, visible = segment_arrays(batch)
    columns = []
    for row, count, first_slot, cached, branched in whole.T.tolist():
        for done in range(0, count, MAX_ROWS):
            branches = branched if branched < 0 else branched + done
            columns.append((row + done, min(MAX_ROWS, count - done), first_slot, cached + done, branches))
    chunks: list[PassChunk] = []
    first = 0
    for index, (row, count, *_) in enumerate(columns):
        is_last = index + 1 == len(columns)
        end = row + count
        if is_last or end + columns[index + 1][1] - columns[first][0] > _PIECE_ROWS:
            start = columns[first][0]
            table = np.array(columns[first : index + 1]).T.copy()
            table[0] -= start
            chunks.append(PassChunk(start, end, table, visible[start:end]))
            first = index + 1
    return chunks


def run_chunks(
    stack: CompiledStack,
    batch: PackedBatch,
    chunks: list[PassChunk],
    cache: KVCache,
    rotary: Rotary,
    aux_ids: tuple[int, ...],
    features: Floats | None = None,
) -> tuple[Floats, Floats, Floats]:
    """Run a pass; arguments and results as for `CompiledStack.run`, with `features [T, F]` for a head.

    Returns:
        logits `[R, V]`, states `[T, H]` and the inputs `[A, T, H]` of the layers `aux_ids`.
    """
    tokens, positions = batch.token_ids.numpy(), batch.positions.numpy()
    only = batch.segments[0]
    start = only.first_slot + only.num_cached
    slots = np.arange(start, start + only.num_rows) if batch.slots is None else batch.slots.numpy()
    wanted = np.arange(len(tokens)) if batch.logits_rows is None else batch.logits_rows.numpy()
    if len(chunks) == 1:
        segments = chunks[0].table, chunks[0].visible
        return stack.run(tokens, features, cache, rotary, positions, slots, *segments, aux_ids, wanted)
    logits = np.empty((len(wanted), stack.num_logits), np.float32)
    states = np.empty((len(tokens), stack.hidden_size), np.float32)
    aux = np.empty((len(aux_ids), len(tokens), stack.hidden_size), np.float32)
    for chunk in chunks:
        rows = slice(chunk.start, chunk.end)
        mine = np.flatnonzero((wanted >= chunk.start) & (wanted < chunk.end))
        given = None if features is None else features[rows]
        logits[mine], states[rows], aux[:, rows] = stack.run(
            tokens[rows], given, cache, rotary, positions[rows], slots[rows], chunk.table, chunk.visible,
            aux_ids, wanted[mine] - chunk.start,
        )  # fmt: skip
    return logits, states, aux
