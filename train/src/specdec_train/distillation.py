"""Distillation losses for draft models, and their acceptance rates."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from specdec_train.packing import micro_batches
from specdec_train.target_probs import divergence, target_probs_of


@torch.no_grad()
def target_logits(target: LlamaForCausalLM, tokens: Tensor) -> Tensor:
    """The target's next-token logits `[B, T, V]` at all but the last of `tokens [B, T + 1]`."""
    logits: Tensor = target(input_ids=tokens[:, :-1], use_cache=False).logits
    return logits


def distillation_loss(draft: LlamaForCausalLM, target: LlamaForCausalLM, tokens: Tensor) -> Tensor:
    """Mean Kullback-Leibler divergence from the target's distribution to the draft's at temperature 1, in nats.

    Args:
        draft: the draft model, trained.
        target: the target.
        tokens: ids `[B, T + 1]`; the last one is not read.
    """
    logits = draft(input_ids=tokens[:, :-1], use_cache=False).logits.flatten(0, 1)
    target_probs = target_probs_of(target_logits(target, tokens).flatten(0, 1))
    return divergence(logits, target_probs, torch.arange(len(logits), device=logits.device))


@torch.no_grad()
def acceptance(
    draft: LlamaForCausalLM, target: LlamaForCausalLM, tokens: Tensor, micro_batch: int
) -> list[dict[str, float]]:
    """Acceptance rate of the first drafted token on held-out text.

    Args:
        draft: the draft model.
        target: the target.
        tokens: windows `[N, T + 1]`.
        micro_batch: windows per pass.

    Returns:
        one entry: `sampled`, the mean of sum(min(p, q)) at temperature 1, and `greedy`, the share of matching argmaxes.
    """
    total = torch.zeros(2, dtype=torch.float64)
    for part in micro_batches(tokens, micro_batch):
        got = draft(input_ids=part[:, :-1], use_cache=False).logits
        total += torch.stack(overlap(got, target_logits(target, part))).double().mean((1, 2)) * len(part)
    sampled, greedy = (total / len(tokens)).tolist()
    return [{"sampled": round(sampled, 4), "greedy": round(greedy, 4)}]


def overlap(logits: Tensor, wanted: Tensor, target_ids: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Acceptance of each guess: `sum(min(p, q))` at temperature 1, and whether the argmaxes match.

    Args:
        logits: `[..., V']` logits of the guesses.
        wanted: `[..., V]` logits of the target.
        target_ids: `[V']` target token id of each logit of the guesses; None if the vocabularies are equal.

    Returns:
        two tensors `[...]`.
    """
    p, q = wanted.float().softmax(-1), logits.float().softmax(-1)
    best = logits.argmax(-1)
    if target_ids is not None:
        p, best = p[..., target_ids], target_ids[best]
    return torch.minimum(p, q).sum(-1), (best == wanted.argmax(-1)).float()
