"""p-logits: the input of the samplers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

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
    ends = list(accumulate(block.num_rows for block in blocks))
    ruled = [
        (b.rules, b, slice(end - b.num_rows, end)) for b, end in zip(blocks, ends, strict=True) if b.rules
    ]
    if ruled:
        before, out = out, out.clone()
        for rules, block, rows in ruled:
            out[rows] = rules.apply(out[rows], block)
        best = out.amax(-1).tolist()  # read once for all requests
        for rules, _, rows in ruled:
            rules.settle(before[rows], out[rows], best[rows])
    return apply_temperature_and_truncation(
        out, [block.params for block in blocks], [block.num_rows for block in blocks]
    )
