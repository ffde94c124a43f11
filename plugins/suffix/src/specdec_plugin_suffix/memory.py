"""The responses of finished requests, used to draft for later requests."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence

from specdec_plugin_suffix.cache import SuffixCache

PIECE = 256
"""Tokens inserted into a tree at once, which takes some tenths of a millisecond."""
TOKENS_PER_STEP = 4 * PIECE
"""Tokens of finished requests inserted or removed per step; limited by count, because drafts must not depend on a clock."""


class ResponseMemory:
    """Keeps responses in the global tree, evicting the oldest first, and a copy of each for saving.

    Each response is preceded by the end of its prompt, if known.

    Inserting a response takes some milliseconds per thousand tokens, and removing it half of that. Both are therefore
    queued, and every step processes a part of the queue.

    Args:
        cache: owner of the global tree.
        max_responses: the most responses to keep; 0 for none.
    """

    def __init__(self, cache: SuffixCache, max_responses: int) -> None:
        self.responses: dict[int, Sequence[int]] = {}
        """Responses by number, oldest first."""
        self.num_added = 0
        """Total number of responses ever added."""
        self._cache = cache
        self._max_responses = max_responses
        self._coming: deque[int] = deque()
        self._leaving: deque[int] = deque()
        self._current: int | None = None
        self._num_entered = 0

    @property
    def is_settled(self) -> bool:
        """Whether the tree holds exactly the kept responses."""
        return not self._coming and not self._leaving

    def add(self, response: array[int]) -> None:
        """Keep a response; `settle` inserts it into the tree."""
        if not response or not self._max_responses:
            return
        self.responses[self.num_added] = response
        self._coming.append(self.num_added)
        self.num_added += 1
        if len(self.responses) > self._max_responses:
            self._drop(next(iter(self.responses)))

    def settle(self, max_tokens: int | None = None) -> None:
        """Update the tree; with a bound process about that many tokens, but at least one piece."""
        done = 0
        while not self.is_settled and (max_tokens is None or done < max_tokens):
            if self._leaving:
                self._cache.evict_response()
                done += self._leaving.popleft()
            else:
                self._enter_piece(self._coming[0])
                done += PIECE

    def _enter_piece(self, number: int) -> None:
        if self._current is None:
            self._current, self._num_entered = number, 0
        response = self.responses[number]
        begin, end = self._num_entered, self._num_entered + PIECE
        is_last = end >= len(response)
        self._cache.append_response(list(response[begin:end]), is_first=begin == 0, is_last=is_last)
        self._num_entered = end
        if is_last:
            self._current = None
            self._coming.popleft()

    def _drop(self, number: int) -> None:
        num_tokens = len(self.responses.pop(number))
        if self._coming and number == self._coming[0]:  # not inserted yet, or only in part
            self._coming.popleft()
            if self._current != number:
                return
            self._current = None
        self._leaving.append(num_tokens)
