"""What the draft model's cache holds of one request."""

from __future__ import annotations

from dataclasses import dataclass, field

from specdec.drafting import DraftVocabulary
from specdec.interfaces.batch import HostIds


@dataclass(slots=True)
class DraftContext:
    """Committed tokens that have rows in the cache, and drafted ones behind them that may turn out right."""

    num_taken: int = 0
    """Committed tokens of the target whose rows are in the cache."""
    num_rows: int = 0
    """Rows of them; differs where a token of the target is several of the draft's."""
    guesses: list[int] = field(default_factory=list)
    """Target ids of the drafted tokens that have rows behind those, one row each."""

    def settle(self, committed: HostIds, start: int, vocabulary: DraftVocabulary) -> None:
        """Keep what was guessed right, and forget from `start` on.

        Args:
            committed: `[n]` all committed tokens.
            start: position of the first newly committed token.
            vocabulary: says how many rows tokens have.
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
