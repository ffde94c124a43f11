"""Philox 4x32-10 in plain torch: the specification, and the implementation on devices without a kernel.

Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

import torch

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_MASK = 0xFFFFFFFF


def philox(counter: tuple[torch.Tensor, ...], seed: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return four words of noise per counter.

    Args:
        counter: four int64 tensors of one shape (or broadcastable), each below 2^32.
        seed: int64 tensor, broadcastable to them; its low and high 32 bits are the key.

    Returns:
        four int64 tensors of values below 2^32.
    """
    c0, c1, c2, c3 = torch.broadcast_tensors(*counter)
    k0, k1 = seed & _MASK, (seed >> 32) & _MASK
    for _ in range(_ROUNDS):
        high0, low0 = _multiply(c0, _MULTIPLIERS[0])
        high1, low1 = _multiply(c2, _MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return c0, c1, c2, c3


def _multiply(a: torch.Tensor, b: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the high and low 32 bits of a 32-bit product, without unsigned 64-bit arithmetic."""
    low_part = (a & 0xFFFF) * b
    high_part = (a >> 16) * b + (low_part >> 16)
    return high_part >> 16, ((high_part & 0xFFFF) << 16) | (low_part & 0xFFFF)


def uniforms(
    seeds: torch.Tensor, positions: torch.Tensor, samples: torch.Tensor, words: torch.Tensor, vocab_size: int
) -> torch.Tensor:
    """Return uniforms strictly between 0 and 1, `[R, V]` float64: `(i + 0.5) / 2^32` of the 32-bit word i.

    Args:
        seeds: `[R]` int64.
        positions: `[R]` int64.
        samples: `[R]` int64 sample indices.
        words: `[R]` int64 from `node_word`.
        vocab_size: V.
    """
    blocks = torch.arange((vocab_size + 3) // 4, device=seeds.device)
    out = philox((blocks[None], positions[:, None], samples[:, None], words[:, None]), seeds[:, None])
    integers = torch.stack(out, -1).flatten(-2)[:, :vocab_size]
    return (integers.double() + 0.5) / 2.0**32


def exponentials(
    seeds: torch.Tensor, positions: torch.Tensor, samples: torch.Tensor, words: torch.Tensor, vocab_size: int
) -> torch.Tensor:
    """Return unit exponentials `-log1p(-u)`, `[R, V]` float64; arguments as for `uniforms`.

    `argmin(e / p)` is `argmax(log p + g)` with Gumbel noise `g = -log e`.
    """
    return -torch.log1p(-uniforms(seeds, positions, samples, words, vocab_size))
