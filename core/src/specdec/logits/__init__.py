"""Turns the target's logits into p-logits: applies every sampling parameter once per row, along the drafted path.

`cut_logits` is for proposers that sample: drafts with the target's temperature and cuts are accepted more often.
`p_logits` and `RowBlock` are for scorers.
"""

from specdec.logits.cuts import cut_logits
from specdec.logits.pipeline import p_logits
from specdec.logits.rows import RowBlock

__all__ = ["RowBlock", "cut_logits", "p_logits"]
