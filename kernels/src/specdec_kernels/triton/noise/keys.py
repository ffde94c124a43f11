"""Keys of random draws.

Philox 4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011) takes a 64-bit key and a 128-bit
counter. The key is the request's seed. The counter's four words are (token id // 4, position, sample index, word), and the lane
of the output block is token id % 4. The word, from `specdec.noise.node_word`, is the purpose of a draw. The specification is
`specdec.noise`, which draws the same tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from specdec_kernels.triton.arguments import check_tensor

_MASK = 0xFFFFFFFF


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


def counter_words(
    keys: NoiseKeys, words: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return seeds, positions, samples and words as `specdec.noise` takes them: all but the seeds modulo 2^32."""
    return keys.seeds, keys.positions & _MASK, keys.samples & _MASK, words & _MASK
