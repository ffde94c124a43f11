"""Packs the rows of one step into one pass."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from specdec.interfaces.draft import CheckedDraft
from specdec.interfaces.forward import HostRows, PackedBatch, Segment
from specdec.interfaces.logits_rules import RowBlock
from specdec.interfaces.score_batch import ScoreBatch

Int64s = npt.NDArray[np.int64]


def pack(
    batch: ScoreBatch, draft: CheckedDraft, device: torch.device
) -> tuple[PackedBatch, list[RowBlock], list[int]]:
    """Pack a step: for each running sequence its chunk of committed tokens, then its draft's nodes.

    Returns:
        the pass; the logits rows of each decoding sequence, after which those for prompt log probabilities follow; and the
        first row of the pass of every sequence, -1 for those that do not run.
    """
    rows = draft.rows
    all_parents = draft.parents
    unread = draft.unread if any(map(len, rows)) else None
    ruled = [] if unread is None else [batch.sequences[index].rules for index in batch.decoding]
    if any(rules is not None and rules.reads_drafts for rules in ruled):
        unread = None
    width, last = 0 if unread is None else unread.width, batch.unread
    row_of_decoding = {index: row for row, index in enumerate(batch.decoding)}
    segments: list[Segment] = []
    tokens: list[Int64s] = []
    positions: list[Int64s] = []
    slots: list[Int64s] = []
    logits_rows: list[int] = []
    prompt_rows: list[int] = []
    row, first_rows, blocks = 0, list[int](), list[RowBlock]()
    for index, (sequence, chunk) in enumerate(zip(batch.sequences, batch.chunks, strict=True)):
        if chunk == 0:
            first_rows.append(-1)
            continue
        decoding = row_of_decoding.get(index)
        nodes = () if decoding is None else rows[decoding]
        start, count = sequence.num_computed, chunk + len(nodes)
        ids = np.empty(count, np.int64)
        ids[:chunk] = sequence.token_ids[start : start + chunk]
        if last is not None:
            ids[chunk - 1] = -1 - last[1][index]
        if unread is None or decoding is None:
            ids[chunk:] = nodes
        else:  # see `HostRows.token_ids`
            ids[chunk:] = -1 - decoding * width - np.arange(len(nodes))
        missing = range(0) if sequence.params.prompt_logprobs is None else sequence.missing_prompt_rows(chunk)
        prompt_rows.extend(range(row + missing.start - start, row + missing.stop - start))
        offsets = np.arange(start, start + count)
        segment = Segment(row, count, sequence.first_slot, start, owner=sequence, num_drafted=len(nodes))
        tokens.append(ids)
        slots.append(offsets + sequence.first_slot)
        if all_parents is not None and decoding is not None and nodes and unread is None:
            offsets = segment.plant(all_parents[decoding])
        positions.append(offsets)
        segments.append(segment)
        first_rows.append(row)
        if decoding is not None:
            parents = None if all_parents is None else all_parents[decoding]
            text = sequence.token_ids, sequence.num_prompt_tokens
            blocks.append(RowBlock(sequence.params, nodes, parents, sequence.rules, *text))
            logits_rows.extend(range(row + chunk - 1, row + count))
        row += count
    has_all = len(logits_rows) == row and not prompt_rows
    wanted = None if has_all else np.array(logits_rows + prompt_rows, np.int64)
    host = HostRows(np.concatenate(tokens), np.concatenate(positions), np.concatenate(slots), wanted)
    unread = unread if last is None else last[0]
    return PackedBatch.of_rows(host, segments, device, unread, draft.along), blocks, first_rows
