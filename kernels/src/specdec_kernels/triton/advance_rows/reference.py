"""The numbers of a draft loop after a verdict in plain torch: the specification."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from specdec_kernels.triton.advance_rows import LoopRows, Masks


def advance_rows_reference(rows: LoopRows, memory: torch.Tensor, most_new: int, masks: Masks) -> None:
    """Write the numbers of the next draft; see `advance_rows`."""
    is_due, counts_at, tokens_at, num_columns = rows.verdict.tolist()
    rows.verdict[0] = 1
    if not is_due:
        return
    for part in (rows.token_ids, rows.positions, rows.context_lens, rows.last_rows):
        part.zero_()
    rows.slots.fill_(-1)
    row = 0
    for request, depth in enumerate(rows.depths.tolist()):
        if depth > 0:
            num_accepted = int(memory[counts_at + request])
            num_left = min(num_accepted, max(0, depth + 1 - most_new))
            first = int(rows.cached[request]) + num_left
            emitted = memory[tokens_at + request * num_columns :]
            for token_id in emitted[num_left : num_accepted + 1]:
                rows.token_ids[row], rows.positions[row] = token_id, first
                rows.slots[row] = rows.first_slots[request] + first
                rows.last_rows[request] = row
                row, first = row + 1, first + 1
            rows.cached[request] = first
            rows.next_positions[request] += num_accepted + 1
            room = int(rows.ends[request] - rows.next_positions[request]) - 1
            rows.depths[request] = depth = max(1, min(depth, room))
            for _ in range(depth + masks.num_more if masks.most else 0):
                rows.token_ids[row], rows.positions[row] = masks.token_id, first
                rows.slots[row] = rows.first_slots[request] + first
                row, first = row + 1, first + 1
            rows.context_lens[request] = first
        rows.query_starts[request + 1 :] = row
