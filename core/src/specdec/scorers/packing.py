"""Packs the rows of one step into one pass."""

from __future__ import annotations

import numpy as np
import torch

from specdec.interfaces.forward import HostRows, PackedBatch, Segment
from specdec.interfaces.row_block import RowBlock
from specdec.interfaces.score_batch import ScoreBatch


def pack(batch: ScoreBatch, device: torch.device) -> tuple[PackedBatch, list[RowBlock]]:
    """Pack a step: for each running sample its chunk of committed tokens, then its drafted nodes.

    Returns:
        the pass, and the logits rows of each sample that gets a token, after which those for prompt log probabilities follow.
    """
    drafted = batch.device_nodes if any(row.num_nodes for row in batch.rows) else None
    segments: list[Segment] = []
    blocks: list[RowBlock] = []
    tokens, positions, slots = list[int](), list[int](), list[int]()
    logits_rows, prompt_rows = list[int](), list[int]()
    first = 0
    for row in batch.rows:
        sequence, start, chunk, parents = row.sequence, row.start, row.chunk, row.parents
        if chunk == 0:
            continue
        count = chunk + row.num_nodes
        if batch.behind is None:
            tokens += sequence.token_ids[start : start + chunk].tolist()
        else:
            tokens.append(0)  # the pass finds it on the device
        if drafted is None:
            tokens += row.nodes
        else:
            place = -1 - len(blocks) * drafted.width
            tokens += range(place, place - row.num_nodes, -1)
        segment = Segment(first, count, sequence.first_slot, start, owner=sequence, num_drafted=row.num_nodes)
        slots += range(sequence.first_slot + start, sequence.first_slot + start + count)
        if parents is not None and row.nodes:
            positions += segment.set_parents(parents).tolist()
        else:
            positions += range(start, start + count)
        segments.append(segment)
        prompt_rows += range(first + row.prompt_rows.start - start, first + row.prompt_rows.stop - start)
        if row.is_sampled:
            text = sequence.token_ids, sequence.num_prompt_tokens, drafted, len(blocks)
            blocks.append(RowBlock(sequence.params, row.nodes, parents, sequence.rules, *text))
            logits_rows += range(first + chunk - 1, first + count)
        first += count
    has_all = len(logits_rows) == first and not prompt_rows
    wanted = None if has_all else np.array(logits_rows + prompt_rows, np.int64)
    ids, places, where = (np.array(each, np.int64) for each in (tokens, positions, slots))
    if device.type == "cpu" and drafted is None and batch.behind is None:  # which shares the host's memory
        slots_there = None if len(segments) == 1 else torch.from_numpy(where)
        logits_there = None if wanted is None else torch.from_numpy(wanted)
        tensors = torch.from_numpy(ids), torch.from_numpy(places)
        return PackedBatch(*tensors, segments, slots_there, logits_there), blocks
    host = HostRows(ids, places, where, wanted)
    return PackedBatch.of_rows(host, segments, device, drafted, batch.transfer, batch.behind), blocks
