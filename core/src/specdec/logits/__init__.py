"""Turns the target's logits into p-logits: applies every sampling parameter once per row, along the drafted path.

`apply_temperature_and_truncation` is for proposers that sample: drafts as the target samples are accepted more often.
`p_logits` and `RowBlock` are for scorers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.faces import lazily
from specdec.logits.pipeline import p_logits
from specdec.logits.rows import RowBlock
from specdec.logits.temperature import apply_temperature_and_truncation

if TYPE_CHECKING:
    from specdec.logits.logprobs import LogprobRecord, list_logprobs, read_listings
    from specdec.logits.processors import ProcessorRule
    from specdec.logits.rules import RequestRules

__all__ = [
    "LogprobRecord",
    "ProcessorRule",
    "RequestRules",
    "RowBlock",
    "apply_temperature_and_truncation",
    "list_logprobs",
    "p_logits",
    "read_listings",
]

__getattr__ = lazily(
    __name__,
    {
        "logprobs": "LogprobRecord list_logprobs read_listings",
        "processors": "ProcessorRule",
        "rules": "RequestRules",
    },
)
