"""Block verification along chains in plain torch: the specification."""

from __future__ import annotations

import torch

from specdec_kernels.triton.noise.keys import NoiseKeys
from specdec_kernels.triton.rejection_verify.reference import (
    accept_uniforms,
    chain_draft,
    chain_ratios,
    chain_target,
    emitted,
    first_unsound,
)
from specdec_kernels.triton.results import ChainVerdict


def block_verify_reference(
    logits: torch.Tensor,
    draft_token_ids: torch.Tensor,
    row_starts: torch.Tensor,
    num_nodes: torch.Tensor,
    temperatures: torch.Tensor,
    keys: NoiseKeys,
    draft_probs: torch.Tensor,
    has_probs: torch.Tensor | None,
    draft_ids: torch.Tensor | None,
) -> ChainVerdict:
    """Return the verdict; see `block_verify`."""
    width = draft_token_ids.shape[1]
    p, is_sound = chain_target(logits, row_starts, num_nodes, temperatures, width)
    q = chain_draft(
        draft_token_ids, num_nodes, temperatures, draft_probs, has_probs, draft_ids, logits.shape[1]
    )
    ratios = chain_ratios(p, q, draft_token_ids, num_nodes)
    weights = p.new_ones(len(p), width + 1)
    for node in range(width):
        weights[:, node + 1] = (weights[:, node] * ratios[:, node]).clamp_max(1.0)
    mass = (p * weights[:, :, None] - q[:, :, :-1]).clamp_min(0.0).sum(2)  # [B, K + 1]
    chances = torch.where(mass > 0, mass / (mass + 1.0 - weights), 0.0)
    places = torch.arange(1, width + 1, device=logits.device)
    # The last node has no child.
    thresholds = torch.where(places < num_nodes[:, None], chances[:, 1:], weights[:, 1:])
    stands = (accept_uniforms(keys, width) < thresholds) & (places <= num_nodes[:, None])
    num_accepted = torch.nn.functional.pad(torch.where(stands, places, 0), (1, 0)).amax(1)
    weight = weights.gather(1, num_accepted[:, None])[:, 0]
    tokens = emitted(p, q, draft_token_ids, num_accepted, weight, keys)
    return ChainVerdict(num_accepted, tokens, first_unsound(is_sound, num_accepted))
