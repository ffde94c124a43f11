"""Distillation losses for draft models, and their acceptance rates."""

from __future__ import annotations

from functools import cache

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


def parallel_loss(
    draft: LlamaForCausalLM, target: LlamaForCausalLM, tokens: Tensor, *, num_parallel: int, mask_id: int
) -> Tensor:
    """Divergence of all guesses of parallel drafting: at each text position, and at the mask tokens after it.

    Args:
        draft: the draft model, trained.
        target: the target.
        tokens: ids `[B, T + 1]`.
        num_parallel: guesses per position, K: one from the text token itself, K - 1 from mask tokens.
        mask_id: the id of the mask token.
    """
    target_probs = target_probs_of(target_logits(target, tokens).flatten(0, 1))
    logits = parallel_logits(draft, tokens[:, :-1], num_parallel=num_parallel, mask_id=mask_id)
    batch, _, length, _ = logits.shape
    rows = torch.arange(batch * length, device=logits.device).view(batch, length)
    parts = [
        divergence(logits[:, j, : length - j].flatten(0, 1), target_probs, rows[:, j:].flatten())
        for j in range(num_parallel)
    ]
    return torch.stack(parts).mean()


def parallel_logits(draft: LlamaForCausalLM, tokens: Tensor, *, num_parallel: int, mask_id: int) -> Tensor:
    """Logits `[B, K, T, V]` of the token `j + 1` positions after text position n, with j masks in between.

    Args:
        draft: the draft model.
        tokens: ids `[B, T]`.
        num_parallel: K.
        mask_id: the id of the mask token.
    """
    batch, length = tokens.shape
    ids = torch.cat([tokens, tokens.new_full((batch, (num_parallel - 1) * length), mask_id)], 1)
    positions, bias = _layout(length, num_parallel)
    logits = draft(input_ids=ids, position_ids=positions, attention_mask=bias, use_cache=False).logits
    return logits.unflatten(1, (num_parallel, length))  # type: ignore[no-any-return]


@cache
def _layout(length: int, num_parallel: int) -> tuple[Tensor, Tensor]:
    """Positions `[1, K T]`, bias `[1, 1, K T, K T]`: mask j after n sees text to n and masks before it."""
    place = torch.arange(length).repeat(num_parallel)
    step = torch.arange(num_parallel).repeat_interleave(length)
    is_text = (step[None, :] == 0) & (place[None, :] <= place[:, None])
    is_own = (place[None, :] == place[:, None]) & (step[None, :] <= step[:, None])
    bias = torch.zeros(len(place), len(place)).masked_fill(
        ~(is_text | is_own), torch.finfo(torch.float32).min
    )
    return (place + step)[None], bias[None, None]


@torch.no_grad()
def acceptance(
    draft: LlamaForCausalLM,
    target: LlamaForCausalLM,
    tokens: Tensor,
    micro_batch: int,
    *,
    num_parallel: int = 1,
    mask_id: int = 0,
) -> list[dict[str, float]]:
    """Acceptance rate on held-out text, per position after the text (one if the draft is not parallel).

    Args:
        draft: the draft model.
        target: the target.
        tokens: windows `[N, T + 1]`.
        micro_batch: windows per pass.
        num_parallel: guesses per position.
        mask_id: the id of the mask token.

    Returns:
        per position: `sampled`, the mean of sum(min(p, q)) at temperature 1, and `greedy`, the share of
        matching argmaxes.
    """
    totals = torch.zeros(num_parallel, 2, dtype=torch.float64)
    for part in micro_batches(tokens, micro_batch):
        wanted = target_logits(target, part)
        length = wanted.shape[1]
        got = parallel_logits(draft, part[:, :-1], num_parallel=num_parallel, mask_id=mask_id)
        for j in range(num_parallel):
            shares = torch.stack(overlap(got[:, j, : length - j], wanted[:, j:]))
            totals[j] += shares.double().mean((1, 2)) * len(part)
    return [
        {"sampled": round(sampled, 4), "greedy": round(greedy, 4)}
        for sampled, greedy in (totals / len(tokens)).tolist()
    ]


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
