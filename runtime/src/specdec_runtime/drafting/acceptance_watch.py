"""Warns of a head that drafts worse than no head at all."""

from __future__ import annotations

import logging
from collections import Counter

from specdec.interfaces import ProposeBatch

logger = logging.getLogger("specdec")

NUM_DRAFTS = 1000
"""Drafts that are counted before the one comparison."""


class AcceptanceWatch:
    """Compares how often the first drafted token is accepted with how often the most frequent token comes next.

    A head whose files are read wrongly (other layers, another norm) still runs, and is accepted less, down to chance.

    Args:
        name: the head, for the message.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._counts: Counter[int] = Counter()
        self._num_drafts = self._num_accepted = 0

    def observe(self, batch: ProposeBatch) -> None:
        """Take in what came of the last drafts, and the tokens after prompts; warns once."""
        if self._num_drafts >= NUM_DRAFTS:
            return
        end = 0
        for row, count in enumerate(batch.counts):
            end += count
            self._num_drafts += batch.last_num_drafted[row] > 0
            self._num_accepted += batch.last_num_accepted[row] > 0
            num_answer = min(count, batch.starts[row] + count - batch.num_prompt_tokens[row])
            if num_answer > 0:
                self._counts.update(batch.new_token_ids[end - num_answer : end].tolist())
        if self._num_drafts < NUM_DRAFTS:
            return
        most, total = max(self._counts.values(), default=0), self._counts.total()
        accepted, frequent = self._num_accepted / self._num_drafts, most / max(1, total)
        if accepted < frequent:
            logger.warning(
                "%s: of %d drafts the first token was accepted in %.1f %%, and always drafting the target's most frequent "
                "token would give %.1f %%: it is a head of another target, or its files are read wrongly (specdec check-head)",
                self._name, self._num_drafts, 100 * accepted, 100 * frequent,
            )  # fmt: skip
