"""p-logits: the input of the samplers."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specdec.logits.rows import RowBlock
from specdec.logits.temperature import apply_temperature_and_truncation


def p_logits(logits: torch.Tensor, blocks: Sequence[RowBlock]) -> torch.Tensor:
    """Return p-logits `[R, V]` in float32; forbidden ids are -inf. `logits` is not written to.

    Args:
        logits: `[R, V]` the target's logits.
        blocks: one per request, in the order of the rows.
    """
    out = logits.float()
    if any(block.rules is not None for block in blocks):
        out = out.clone()
        start = 0
        for block in blocks:
            end = start + block.num_rows
            if block.rules is not None:
                out[start:end] = block.rules.apply(out[start:end], block)
            start = end
    return apply_temperature_and_truncation(
        out, [block.params for block in blocks], [block.num_rows for block in blocks]
    )
