"""Shared arrays with one segment per request."""

from __future__ import annotations

import numpy as np

from specdec_plugin_ngram.kernels import Int32s

SMALLEST_CAPACITY = 256
SPACING = 80
"""Tokens between segments, so that the ends of equally long texts do not share cache sets."""


class SegmentPool:
    """Allocates segments of `capacity` tokens and as many table entries per n-gram length.

    Capacities are powers of two. A released segment is reused for the next request of its size. The arrays grow
    by doubling and never shrink, so memory is determined by the peak use.
    """

    def __init__(self, num_lengths: int) -> None:
        self._num_lengths = num_lengths
        self._used = 0
        self._free: dict[int, list[int]] = {}
        self.tokens: Int32s = np.zeros(SMALLEST_CAPACITY, dtype=np.int32)
        """`[P]`"""
        self.tables: Int32s = np.zeros(SMALLEST_CAPACITY * self._num_lengths, dtype=np.int32)
        """`[P * lengths]`"""

    def allocate(self, capacity: int) -> int:
        """Return the offset, in tokens, of a segment with empty tables."""
        free = self._free.get(capacity)
        if free:
            offset = free.pop()
        else:
            offset = self._used
            self._used += capacity + SPACING
            if self._used > len(self.tokens):
                self._grow()
        first = offset * self._num_lengths
        self.tables[first : first + capacity * self._num_lengths] = 0
        return offset

    def release(self, offset: int, capacity: int) -> None:
        """Take a segment back."""
        self._free.setdefault(capacity, []).append(offset)

    def move(self, offset: int, capacity: int, new_capacity: int, num_tokens: int) -> int:
        """Replace a segment by a larger one with the same tokens and empty tables; return its offset."""
        new_offset = self.allocate(new_capacity)
        self.tokens[new_offset : new_offset + num_tokens] = self.tokens[offset : offset + num_tokens]
        self.release(offset, capacity)
        return new_offset

    def _grow(self) -> None:
        size = max(self._used, 2 * len(self.tokens))
        for name, per_token in (("tokens", 1), ("tables", self._num_lengths)):
            old = getattr(self, name)
            new = np.zeros(size * per_token, dtype=np.int32)
            new[: len(old)] = old
            setattr(self, name, new)
