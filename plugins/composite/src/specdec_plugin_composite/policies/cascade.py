"""`cascade`: cheap members first, others where these promise too little."""

from __future__ import annotations

from typing import ClassVar

from specdec_plugin_composite.offer import Offer
from specdec_plugin_composite.policy import Policy
from specdec_plugin_composite.round import Choice, Round, Unseen


class Cascade(Policy):
    """Asks members in their order until a draft promises `min_promise` tokens; if none does, the last available draft is used.

    The idea is that of Arctic Inference's hybrid speculation (arXiv 2411.04975). The last member's draft is not looked at, and
    keeps its q if the drafts before it had none.
    """

    name: ClassVar[str] = "cascade"

    @classmethod
    def is_unseen(cls, member: int, num_members: int) -> bool:
        """Return whether a member is the last one."""
        return member == num_members - 1

    def draft(self, turn: Round) -> list[Choice]:
        """Return for each row the first draft that promises enough."""
        best: list[Offer | None] = [None] * len(turn.request_ids)
        is_open = [most > 0 for most in turn.max_nodes]
        last = len(self.members) - 1
        for number in range(last):
            limits = [most if still else 0 for most, still in zip(turn.max_nodes, is_open, strict=True)]
            for row, offer in enumerate(turn.offers(number, limits)):
                if offer is not None:
                    best[row], is_open[row] = offer, offer.promise < self.min_promise
        return [
            Unseen(last, most, offer) if still else offer
            for most, offer, still in zip(turn.max_nodes, best, is_open, strict=True)
        ]
