"""The pass that a model is probed with at load."""

from __future__ import annotations

import torch

from specdec.interfaces.forward import PackedBatch, Segment

PROBE_ROWS = 16
"""Maximum number of rows of `probe_pass`."""


def probe_pass(vocab_size: int, max_context: int, device: torch.device) -> PackedBatch:
    """Return a pass of one request, with all logits, for probing a model at load.

    The ids are spread evenly over the vocabulary. The first ids are often special tokens, which trained models
    treat differently from all others, with much more rounding in 16 bits. The second half of the rows is at the last
    positions, because some models scale their queries beyond a length.

    Args:
        vocab_size: vocabulary size of the model.
        max_context: maximum sequence length; the pass has `min(max_context, PROBE_ROWS)` rows.
        device: where it runs.
    """
    num_rows = min(PROBE_ROWS, max_context)
    rows = torch.arange(num_rows, device=device)
    ids = (2 * rows + 1) * vocab_size // (2 * num_rows)
    positions = torch.where(rows < num_rows // 2, rows, rows + max_context - num_rows)
    segments = [Segment(row=0, num_rows=num_rows, first_slot=0, num_cached=0)]
    return PackedBatch(ids, positions, segments, slots=None, logits_rows=None, longest=max_context)
