"""How the target spells the texts that grammars force, and what it puts between them."""

from __future__ import annotations

from collections.abc import Callable

SpellingContext = bytes | tuple[int, int]
"""The forced text that comes next or, where nothing is forced, the last token and a hash of the allowed ones."""
_MOST_CONTEXTS = 16_384
_DECAY = 0.95
"""Factor on the counts of a place each time that it comes."""
_UNSEEN = 0.5
"""Count of what did not come yet."""
_LEAST = 0.1
"""Counts below this are dropped."""


class Spellings:
    """Counts the tokens that the target chose at places where a grammar leaves few, over all requests.

    They change drafts alone: a tokenizer spells `order_identifier` in one way, and the target may prefer another.
    """

    def __init__(self) -> None:
        self._counts: dict[SpellingContext, dict[int, float]] = {}

    def after(self, place: SpellingContext, allows: Callable[[int], bool]) -> tuple[int, float] | None:
        """Return the token that is most likely at a place, with its probability; None if nothing is known.

        Args:
            place: the place.
            allows: returns whether the grammar allows a token there.
        """
        counts = self._counts.get(place)
        if counts is None:
            return None
        token_id = max(counts, key=counts.__getitem__)
        if not allows(token_id):
            return None
        return token_id, counts[token_id] / (sum(counts.values()) + _UNSEEN)

    def learn(self, place: SpellingContext, token_id: int) -> None:
        """Count the token that came at a place."""
        counts = {
            each: _DECAY * count for each, count in self._counts.pop(place, {}).items() if count > _LEAST
        }
        counts[token_id] = counts.get(token_id, 0.0) + 1.0
        self._counts[place] = counts
        if len(self._counts) > _MOST_CONTEXTS:
            del self._counts[next(iter(self._counts))]
