"""`longest`: the draft with the longest path."""

from __future__ import annotations

from typing import ClassVar

from specdec_plugin_composite.offer import Offer
from specdec_plugin_composite.policy import Policy
from specdec_plugin_composite.round import Choice, Round


class Longest(Policy):
    """Asks all members, and takes the draft with the longest path; of equally long ones the first member's."""

    name: ClassVar[str] = "longest"

    def draft(self, turn: Round) -> list[Choice]:
        """Return the longest draft of each row."""
        best: list[Offer | None] = [None] * len(turn.request_ids)
        for number in range(len(self.members)):
            for row, offer in enumerate(turn.offers(number)):
                before = best[row]
                if offer is not None and (before is None or offer.depth > before.depth):
                    best[row] = offer
        return list(best)
