"""A proposer that raises at random."""

from __future__ import annotations

import random
from typing import ClassVar

from specdec.interfaces import Draft, ProposeBatch
from specdec_plugin_ngram.proposer import NgramProposer


class FailingProposer(NgramProposer):
    """Drafts like `ngram`, and raises in about one step of fifty."""

    name: ClassVar[str] = "failing"
    _random = random.Random(0)

    def propose(self, batch: ProposeBatch) -> Draft:
        """Draft, or raise."""
        draft = super().propose(batch)
        if self._random.random() < 0.02:
            raise RuntimeError("this proposer fails at random")
        return draft
