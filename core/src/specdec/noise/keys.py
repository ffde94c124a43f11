"""The keys of a draw.

Philox takes a 64-bit key and a 128-bit counter. The key is the request's seed. The counter's four words are
(token id // 4, position, sample index, stream and node); the lane of the output block is token id % 4. For `strict` and
coupled drafting, `position` is the absolute position. For every other stream, it is the number of tokens committed when
the step began, because keys of position alone bias verifiers that look at discarded drafts.
"""

from __future__ import annotations

from enum import IntEnum

SEED_BITS = 63
"""Bits of a seed that is made up."""
_STREAM_BITS = 3


class Stream(IntEnum):
    """Separate streams, so that no draw serves two decisions."""

    TARGET = 0
    """`strict` and coupled drafting."""
    DRAFT = 1
    ACCEPT = 2
    RESIDUAL = 3


def node_word(stream: Stream, node: int = 0) -> int:
    """Return the counter word for a stream and a node index (0 for the first drafted node's parent)."""
    return int(stream) | (node << _STREAM_BITS)


def signed(seed: int) -> int:
    """Return a seed of any size as a signed 64-bit number, the type of the noise's keys."""
    low = seed & (2**64 - 1)
    return low - 2**64 if low >= 2**63 else low
