"""p-logits: the input of the samplers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch

from specdec.logits.edits import make_edits
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
        before, out = out, out.clone(memory_format=torch.contiguous_format)
        for rules, block, rows in ruled:
            rules.process(out[rows], block)
        edits = [(rows.start, rules.edits(block, out.shape[1])) for rules, block, rows in ruled]
        make_edits(out, [(first, each) for first, each in edits if each is not None])
        on_host = [(rules, block, rows) for rules, block, rows in ruled if rules.is_on_host]
        for rules, block, rows in on_host:
            rules.mask(out[rows], block)
        best = out.amax(-1).tolist() if on_host else []  # read once for all requests
        for rules, _, rows in on_host:
            rules.settle(before[rows], out[rows], best[rows])
    return apply_temperature_and_truncation(
        out, [block.params for block in blocks], [block.num_rows for block in blocks]
    )
