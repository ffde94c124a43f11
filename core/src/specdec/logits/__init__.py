"""From the target's logits to p-logits: every sampling parameter, applied once per row, along the drafted path.

`cut_logits` is for proposers that sample: a draft that is heated and cut as the target's law is is accepted more often.
"""

from specdec.logits.cuts import cut_logits

__all__ = ["cut_logits"]
