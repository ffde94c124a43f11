"""Turns the target's logits into p-logits: applies every sampling parameter once per row, along the drafted path.

`apply_temperature_and_truncation` is for proposers that sample: drafts as the target samples are accepted more often.
`p_logits`, `p_logits_of` and `RowBlock` are for scorers, `with_cuts` for samplers that apply top-k and top-p themselves
(`Scores.is_cut`).
"""

from specdec.interfaces.row_block import RowBlock
from specdec.logits.logprobs import LogprobRecord, list_logprobs, read_listings
from specdec.logits.pipeline import apply_temperature_and_truncation, p_logits, p_logits_of, with_cuts

__all__ = [
    "LogprobRecord",
    "RowBlock",
    "apply_temperature_and_truncation",
    "list_logprobs",
    "p_logits",
    "p_logits_of",
    "read_listings",
    "with_cuts",
]
