"""Verification of drafted tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from device.cases.sampling import keys_of
from device.kernel_case import KernelCase, Problem, num_bytes
from device.sizes import Sizes
from specdec_kernels.triton import strict_verify

_TEMPERATURE = 0.8


class _Chains(NamedTuple):
    """The target's logits, with the best token of each row as the draft, so most drafted tokens are accepted."""

    logits: torch.Tensor
    draft_token_ids: torch.Tensor
    row_starts: torch.Tensor
    num_nodes: torch.Tensor


def _chains(sizes: Sizes) -> _Chains:
    size, k = sizes.batch_size, sizes.k
    logits = sizes.randn(sizes.num_rows, sizes.shape.vocab_size) * 4
    draft = logits.float().argmax(-1).view(size, 1 + k)[:, :k].contiguous()
    counts = torch.full((size,), k, device=sizes.device)
    return _Chains(logits, draft, sizes.arange(size) * (1 + k), counts)


def make_strict_verify(sizes: Sizes) -> Problem:
    """Chains by sample and compare."""
    chains, keys = _chains(sizes), keys_of(sizes, sizes.batch_size)
    temperatures = torch.full((sizes.batch_size,), _TEMPERATURE, device=sizes.device)

    def call() -> Sequence[torch.Tensor]:
        return strict_verify(*chains, temperatures, keys)

    return Problem(call, num_bytes(chains.logits))


CASES = (KernelCase("strict_verify", "chains", make_strict_verify),)
