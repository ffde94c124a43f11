"""Turns the target's logits into p-logits: applies every sampling parameter once per row, along the drafted path.

`cut_logits` is for proposers that sample: drafts with the target's temperature and cuts are accepted more often.
`p_logits` and `RowBlock` are for scorers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.faces import lazily
from specdec.logits.cuts import cut_logits
from specdec.logits.pipeline import p_logits
from specdec.logits.rows import RowBlock

if TYPE_CHECKING:
    from specdec.logits.logprobs import LogprobRecord as LogprobRecord
    from specdec.logits.processors import ProcessorRule as ProcessorRule
    from specdec.logits.rules import RequestRules as RequestRules

__all__ = [
    "LogprobRecord",
    "ProcessorRule",
    "RequestRules",
    "RowBlock",
    "cut_logits",
    "p_logits",
]

__getattr__ = lazily(
    __name__,
    {
        "LogprobRecord": "logprobs",
        "ProcessorRule": "processors",
        "RequestRules": "rules",
    },
)
