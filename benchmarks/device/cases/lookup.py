"""Prompt lookup."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from device.kernel_case import KernelCase, Problem, num_bytes
from device.sizes import Sizes
from specdec_kernels.triton import ngram_match

_DIFFERENT_TOKENS = 64
"""Small enough that n-grams of every length repeat."""


def make_ngram_match(sizes: Sizes) -> Problem:
    """Prompt lookup over the whole context of every request."""
    tokens = sizes.ids(sizes.batch_size, sizes.context, below=_DIFFERENT_TOKENS).int()
    counts = torch.full((sizes.batch_size,), sizes.context, device=sizes.device)

    def call() -> Sequence[torch.Tensor]:
        return ngram_match(tokens, counts, 1, 4, max(1, sizes.k))

    return Problem(call, num_bytes(tokens))


CASES = (KernelCase("ngram_match", "n-grams of 1 to 4", make_ngram_match),)
