"""Keys of random draws.

Philox takes a 64-bit key and a 128-bit counter. The key is the request's seed. The counter's four words are (token id // 4,
position, sample index, word), and the lane of the output block is token id % 4. The word identifies the purpose of a draw:
its lowest three bits are the stream, the others a node index. `specdec.noise` uses the same numbers for streams and words, so
both draw the same tokens.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import torch

from specdec_kernels.triton.arguments import check_tensor

_STREAM_BITS = 3


class Stream(IntEnum):
    """Separate random streams, so no draw is used for two decisions."""

    TARGET = 0
    """Tokens that depend only on seed and position, and drafts coupled to them."""
    DRAFT = 1
    ACCEPT = 2
    RESIDUAL = 3


class NoiseKeys(NamedTuple):
    """Keys of rows or requests: contiguous int64 `[R]` or `[B]`; positions and samples are used modulo 2^32."""

    seeds: torch.Tensor
    """Request seeds, all 64 bits."""
    positions: torch.Tensor
    """Absolute position of the token to draw, or tokens committed when the step began, depending on the operation."""
    samples: torch.Tensor
    """Sample indices."""


def check_keys(keys: NoiseKeys, size: int, like: torch.Tensor) -> None:
    """Reject keys that are not contiguous int64 `[size]` on the device of `like`.

    Raises:
        ValueError: naming the field.
    """
    for name, tensor in zip(NoiseKeys._fields, keys, strict=True):
        check_tensor(f"keys.{name}", tensor, (size,), (torch.int64,), like)


def node_word(stream: Stream, node: int = 0) -> int:
    """Return the counter word for a stream and a node index (0 for the first drafted node's parent)."""
    return int(stream) | (node << _STREAM_BITS)
