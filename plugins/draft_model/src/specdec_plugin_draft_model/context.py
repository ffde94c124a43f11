"""State of one request in the draft model's cache."""

from __future__ import annotations

from dataclasses import dataclass, field

from specdec.interfaces import HostIds
from specdec_drafting import DraftVocabulary


@dataclass(slots=True)
class DraftContext:
    """Committed tokens with rows in the cache, followed by drafted tokens that may be accepted."""

    num_taken: int = 0
    """Number of the target's committed tokens whose rows are in the cache."""
    num_rows: int = 0
    """Number of their rows; it differs if a target token maps to several draft tokens."""
    guesses: list[int] = field(default_factory=list)
    """Target ids of the drafted tokens whose rows follow, one row each."""

    def settle(self, committed: HostIds, start: int, vocabulary: DraftVocabulary) -> None:
        """Keep the rows of accepted drafted tokens, and drop all others from `start` on.

        Args:
            committed: `[n]` all committed tokens.
            start: position of the first newly committed token.
            vocabulary: gives the number of rows of each token.
        """
        if start < self.num_taken:
            self.num_taken = start
            self.num_rows = vocabulary.num_draft_ids(committed[:start])
        else:
            news = committed[self.num_taken : self.num_taken + len(self.guesses)].tolist()
            right = 0
            for guess, token in zip(self.guesses, news, strict=False):
                if guess != token:
                    break
                right += 1
            self.num_taken += right
            self.num_rows += right
        self.guesses = []
