"""Philox 4x32-10 in plain torch: the specification.

Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

import torch

from specdec_kernels.triton.noise.keys import NoiseKeys

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_MASK = 0xFFFFFFFF


def uniforms_reference(keys: NoiseKeys, words: torch.Tensor, num_ids: int) -> torch.Tensor:
    """Return `(i + 0.5) / 2^32` of the 32-bit noise i of every id, `[R, num_ids]` float64; see `uniforms`."""
    blocks = torch.arange((num_ids + 3) // 4, device=words.device)[None]
    counter = [blocks, *((part & _MASK)[:, None] for part in (keys.positions, keys.samples, words))]
    lanes = _philox(list(torch.broadcast_tensors(*counter)), keys.seeds[:, None])
    return (torch.stack(lanes, -1).flatten(1)[:, :num_ids].double() + 0.5) / 2.0**32


def exponentials_reference(keys: NoiseKeys, words: torch.Tensor, num_ids: int) -> torch.Tensor:
    """Return unit exponentials `[R, num_ids]` float64 of the same uniforms."""
    return -torch.log1p(-uniforms_reference(keys, words, num_ids))


def gumbel_noise_reference(keys: NoiseKeys, words: torch.Tensor, num_ids: int) -> torch.Tensor:
    """Return Gumbel noise `[R, num_ids]` float64 of the same uniforms; see `gumbel_noise`."""
    return -exponentials_reference(keys, words, num_ids).log()


def _philox(counter: list[torch.Tensor], seeds: torch.Tensor) -> list[torch.Tensor]:
    c0, c1, c2, c3 = counter
    k0, k1 = seeds & _MASK, (seeds >> 32) & _MASK
    for _ in range(_ROUNDS):
        (high0, low0), (high1, low1) = _product(c0, _MULTIPLIERS[0]), _product(c2, _MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + _KEY_STEPS[0]) & _MASK, (k1 + _KEY_STEPS[1]) & _MASK
    return [c0, c1, c2, c3]


def _product(a: torch.Tensor, b: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the high and low 32 bits of a product, computed by halves since int64 would overflow."""
    low = (a & 0xFFFF) * b
    middle = (a >> 16) * b + (low >> 16)
    return middle >> 16, ((middle & 0xFFFF) << 16) | (low & 0xFFFF)
