"""A predicted output, and the place in it that a sample has reached."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

MOST_DRAFTED = 16
"""Most tokens drafted in a step."""
_FIRST_DRAFTED = 8
_FEWEST_DRAFTED = 4
_GRAM = 4
"""Number of tokens whose occurrences are looked up in the whole prediction."""
_NEARBY = 32
"""Number of tokens within which a short match counts."""
_MOST_TRIED = 8
"""Occurrences of a token that are tried on each side of the place."""
_LONGEST_MATCH = 16


class Prediction:
    """Token ids that a caller expects as output, with their occurrences. Shared by the samples of a request."""

    def __init__(self, token_ids: Sequence[int]) -> None:
        self.token_ids = list(token_ids)
        self._positions: dict[int, list[int]] = {}
        self._places_of_gram: dict[tuple[int, ...], list[int]] = {}
        for position, token_id in enumerate(self.token_ids):
            self._positions.setdefault(token_id, []).append(position)
        for first in range(len(self.token_ids) - _GRAM + 1):
            gram = tuple(self.token_ids[first : first + _GRAM])
            self._places_of_gram.setdefault(gram, []).append(first + _GRAM - 1)

    def after(self, output: Sequence[int], expected: int, min_match: int) -> int | None:
        """Return the place after the best occurrence of the output's last tokens, or None.

        The longest match is best, then the one nearest to `expected`. The work is limited whatever the length.

        Args:
            output: the output so far, at least one token.
            expected: the place at which the output's newest token was expected.
            min_match: fewest tokens that must match; two more where the match is not near.
        """
        candidates = _nearest(self._positions.get(output[-1], []), expected)
        if len(output) >= _GRAM:
            candidates += _nearest(self._places_of_gram.get(tuple(output[-_GRAM:]), []), expected)
        best, found = (0, 0), None
        for position in candidates:
            length = self._match_length(output, position)
            distance = abs(position - expected)
            needed = min_match if distance <= _NEARBY else min_match + 2
            if length >= needed and (length, -distance) > best:
                best, found = (length, -distance), position + 1
        return found

    def _match_length(self, output: Sequence[int], position: int) -> int:
        """Return how many of the output's last tokens are those before and at a place."""
        most = min(_LONGEST_MATCH, len(output), position + 1)
        for length in range(most):
            if output[-1 - length] != self.token_ids[position - length]:
                return length
        return most


class PredictionCursor:
    """Follows one sample's output through a prediction, past insertions, deletions and replacements.

    Drafts become longer while they are accepted. After a draft of which nothing was accepted, more tokens must match
    before the next, so that a useless prediction costs a few drafts.
    """

    def __init__(self, prediction: Prediction) -> None:
        self._prediction = prediction
        self._position: int | None = 0
        """The place of the next token; None while the output differs."""
        self._expected = 0
        """The place that the next token would have without further differences."""
        self._min_match = 1
        self._most = _FIRST_DRAFTED

    def draft(self, most: int) -> list[int]:
        """Return at most `most` tokens that are expected next."""
        if self._position is None:
            return []
        return self._prediction.token_ids[self._position : self._position + min(most, self._most)]

    def advance(self, output: Sequence[int], num_new: int) -> None:
        """Follow the output `output`, whose last `num_new` tokens are new."""
        token_ids = self._prediction.token_ids
        for end in range(len(output) - num_new + 1, len(output) + 1):
            position = self._position
            if position is not None and position < len(token_ids) and token_ids[position] == output[end - 1]:
                self._position = position + 1
            else:
                recent = output[max(0, end - _LONGEST_MATCH) : end]
                self._position = self._prediction.after(recent, self._expected, self._min_match)
            self._expected = self._expected + 1 if self._position is None else self._position

    def observe(self, num_drafted: int, num_accepted: int) -> None:
        """Record a verified draft."""
        if not num_accepted:
            self._min_match, self._most = min(2 * self._min_match, _LONGEST_MATCH), _FEWEST_DRAFTED
            return
        if num_accepted >= min(num_drafted, _FEWEST_DRAFTED):
            self._min_match = 1
        self._most = min(MOST_DRAFTED, max(_FEWEST_DRAFTED, 2 * num_accepted))


def _nearest(positions: list[int], expected: int) -> list[int]:
    """Return the ascending places that are nearest to the expected one on both sides."""
    middle = bisect_left(positions, expected)
    return positions[max(0, middle - _MOST_TRIED) : middle + _MOST_TRIED]
