"""Packs the rows of one step into one pass."""

from __future__ import annotations

import numpy as np
import torch

from specdec.interfaces.draft import CheckedDraft
from specdec.interfaces.forward import HostRows, PackedBatch, Segment
from specdec.interfaces.logits_rules import RowBlock
from specdec.interfaces.score_batch import ScoreBatch
from specdec.interfaces.sent import Along


def pack(batch: ScoreBatch, draft: CheckedDraft, device: torch.device) -> tuple[PackedBatch, list[RowBlock]]:
    """Pack a step: for each running sequence its chunk of committed tokens, then its draft's nodes.

    Returns:
        the pass, and the logits rows of each decoding sequence, after which those for prompt log probabilities follow.
    """
    rows, all_parents = draft.rows, draft.parents
    unread = draft.unread if any(map(len, rows)) else None
    ruled = [] if unread is None else [batch.sequences[index].rules for index in batch.decoding]
    if any(rules is not None and rules.reads_drafts for rules in ruled):
        unread = None
    width, last = 0 if unread is None else unread.width, batch.unread
    row_of_decoding = {index: row for row, index in enumerate(batch.decoding)}
    segments: list[Segment] = []
    tokens, positions, slots = list[int](), list[int](), list[int]()
    logits_rows, prompt_rows = list[int](), list[int]()
    row, blocks = 0, list[RowBlock]()
    for index, (sequence, chunk) in enumerate(zip(batch.sequences, batch.chunks, strict=True)):
        if chunk == 0:
            continue
        decoding = row_of_decoding.get(index)
        nodes = () if decoding is None else rows[decoding]
        start, count = sequence.num_computed, chunk + len(nodes)
        tokens += sequence.token_ids[start : start + chunk].tolist()
        if last is not None:
            tokens[-1] = -1 - last[1][index]
        if unread is None or decoding is None:
            tokens += nodes
        else:  # see `HostRows.token_ids`
            tokens += range(-1 - decoding * width, -1 - decoding * width - len(nodes), -1)
        if sequence.params.prompt_logprobs is not None:
            missing = sequence.missing_prompt_rows(chunk)
            prompt_rows += range(row + missing.start - start, row + missing.stop - start)
        segment = Segment(row, count, sequence.first_slot, start, owner=sequence, num_drafted=len(nodes))
        slots += range(sequence.first_slot + start, sequence.first_slot + start + count)
        if all_parents is not None and decoding is not None and nodes and unread is None:
            positions += segment.plant(all_parents[decoding]).tolist()
        else:
            positions += range(start, start + count)
        segments.append(segment)
        if decoding is not None:
            parents = None if all_parents is None else all_parents[decoding]
            text = sequence.token_ids, sequence.num_prompt_tokens
            blocks.append(RowBlock(sequence.params, nodes, parents, sequence.rules, *text))
            logits_rows += range(row + chunk - 1, row + count)
        row += count
    has_all = len(logits_rows) == row and not prompt_rows
    wanted = None if has_all else np.array(logits_rows + prompt_rows, np.int64)
    ids, places, where = (np.array(each, np.int64) for each in (tokens, positions, slots))
    host = HostRows(ids, places, where, wanted)
    unread = unread if last is None else last[0]
    return PackedBatch.of_rows(host, segments, device, unread, along_of(batch)), blocks


def along_of(batch: ScoreBatch) -> Along | None:
    """Return what goes to the device with the pass of a step; only the engine's own batches have it."""
    along: Along | None = getattr(batch, "along", None)
    return along
