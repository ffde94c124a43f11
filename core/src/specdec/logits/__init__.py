"""From the target's logits to p-logits: every sampling parameter, applied once per row, along the drafted path.

`cut_logits` is for proposers that sample: a draft with the target's temperature and cuts is accepted more often. `p_logits` and
`RowBlock` are for scorers.
"""

from specdec.logits.cuts import cut_logits
from specdec.logits.pipeline import p_logits
from specdec.logits.rows import RowBlock

__all__ = ["RowBlock", "cut_logits", "p_logits"]
