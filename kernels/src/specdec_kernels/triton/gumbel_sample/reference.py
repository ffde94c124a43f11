"""Sampling with Gumbel noise in plain torch: the specification."""

from __future__ import annotations

import torch

from specdec.noise import exponentials
from specdec_kernels.triton.noise.keys import NoiseKeys, counter_words


def gumbel_sample_reference(
    logits: torch.Tensor, temperatures: torch.Tensor, keys: NoiseKeys, words: torch.Tensor | None
) -> torch.Tensor:
    """Return token ids `[R]`; see `gumbel_sample`."""
    words = torch.zeros_like(keys.seeds) if words is None else words
    noise = -exponentials(*counter_words(keys, words), logits.shape[1]).log()
    is_sampled = temperatures[:, None] > 0
    scaled = apply_temperature(logits, temperatures)
    scores = torch.where(is_sampled & (scaled > -torch.inf), scaled + noise, scaled)
    return best_ids(scores)


def apply_temperature(logits: torch.Tensor, temperatures: torch.Tensor) -> torch.Tensor:
    """Return `[R, V]` float64: logits minus the best of their row, divided by its temperature unless that is 0.

    Subtracting first keeps equal best logits equal at any temperature. A NaN counts as -inf.
    """
    logits = torch.where(logits.isnan(), -torch.inf, logits.double())
    divisors = clamped(temperatures).double()[:, None]
    best = logits.amax(1, keepdim=True)
    return (
        torch.where(logits == -torch.inf, logits, torch.where(logits == best, 0.0, logits - best)) / divisors
    )


def clamped(temperatures: torch.Tensor) -> torch.Tensor:
    """Return temperatures to divide by: 1 for greedy rows, others clamped to the normal numbers of float32."""
    limits = torch.finfo(torch.float32)
    return torch.where(temperatures > 0, temperatures.clamp(limits.tiny, limits.max), 1.0)


def best_ids(logits: torch.Tensor) -> torch.Tensor:
    """Return the id `[R]` of the greatest logit of each row; ties go to the lowest id, a NaN never wins."""
    vocab_size = logits.shape[1]
    comparable = torch.where(logits.isnan(), -torch.inf, logits)
    ids = torch.arange(vocab_size, device=logits.device)
    is_best = comparable == comparable.amax(1, keepdim=True)
    return torch.where(is_best, ids, vocab_size).amin(1)
