"""Verification by Triton kernels."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch

from specdec.interfaces import PADDING_ID, CheckedDraft, Scores, Verdict, VerifyBatch
from specdec.samplers import normalised
from specdec_kernels.cuda.attention import kernels_on
from specdec_kernels.triton.noise.keys import NoiseKeys
from specdec_kernels.triton.strict_verify import strict_verify


def walk_on_device(scores: Scores, draft: CheckedDraft, batch: VerifyBatch) -> Verdict | None:
    """Verify chains or trees along the target's drawn tokens; synchronises once. None for a batch without drafts.

    Args:
        scores: p-logits; temperature is already applied.
        draft: a checked draft.
        batch: facts about its rows.
    """
    if not batch.num_nodes:
        return None
    device = scores.logits.device
    parents = None if draft.parents is None else _sent(draft.parents, max(draft.num_nodes), device)
    with kernels_on(device):
        verdict = strict_verify(*_arguments(scores, draft, batch), parents=parents)
    together = torch.cat((verdict.num_accepted[:, None], verdict.token_ids, verdict.accepted_nodes), 1)
    first = 1 + verdict.token_ids.shape[1]
    rows = together.tolist()
    return Verdict([row[first : first + row[0]] for row in rows], [row[1 : row[0] + 2] for row in rows])


def judge_on_device(
    operation: str, scores: Scores, draft: CheckedDraft, batch: VerifyBatch
) -> Verdict | None:
    """Verify chains by a kernel that compares p and q, with one synchronisation; None for batches that the kernels do not take.

    Args:
        operation: `rejection_verify` or `block_verify`.
        scores: p-logits; temperature is already applied.
        draft: a checked draft.
        batch: facts about its rows.
    """
    device = scores.logits.device
    if not batch.num_nodes or batch.is_all_greedy or draft.parents is not None:
        return None
    if draft.drawn is not None and draft.drawn.vocab_map is not None:
        return None
    judge = getattr(import_module(f"specdec_kernels.triton.{operation}"), operation)
    probs, is_drawn = _drawn_rows(draft, batch, device)
    given = _arguments(scores, draft, batch, is_drawn)
    with kernels_on(device):
        verdict = judge(*given, draft_probs=probs, has_probs=is_drawn)
    rows = torch.cat((verdict.num_accepted[:, None], verdict.token_ids), 1).tolist()
    return Verdict([list(range(row[0])) for row in rows], [row[1 : row[0] + 2] for row in rows])


def _drawn_rows(
    draft: CheckedDraft, batch: VerifyBatch, device: torch.device
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Return q and `[B]`: the rows that were drawn from it and are sampled; (None, None) if no row was."""
    drawn = draft.drawn
    if drawn is None or not drawn.node_probs.shape[2]:
        return None, None
    kind = torch.float64 if drawn.node_probs.dtype is torch.float64 else torch.float32
    probs = normalised(drawn.node_probs, torch.empty(0, dtype=kind, device=device))
    probs = probs if probs.stride(-1) == 1 else probs.contiguous()
    is_sampled = torch.tensor([not params.is_greedy for params in batch.sampling_params]).to(device)
    is_drawn = is_sampled if drawn.has_probs is None else is_sampled & drawn.has_probs.to(device)
    return probs, is_drawn


def _arguments(
    scores: Scores, draft: CheckedDraft, batch: VerifyBatch, is_drawn: torch.Tensor | None = None
) -> tuple[Any, ...]:
    """Return what every kernel takes: logits, drafted ids, first rows, counts, temperatures and keys.

    Ids are as drawn in rows `is_drawn`, `[B]`, and as scored in all others.
    """
    device = scores.logits.device
    drawn = None if draft.drawn is None else draft.drawn.token_ids
    width = max(draft.num_nodes) if drawn is None else drawn.shape[1]
    numbers = [scores.row_starts, batch.num_nodes, batch.seeds, batch.num_tokens, batch.sample_indices]
    starts, counts, *keys = torch.tensor(numbers).to(device, non_blocking=True)
    ids = _sent(draft.rows, width, device)
    if is_drawn is not None and drawn is not None:
        ids = torch.where(is_drawn[:, None], drawn.to(device), ids)
    temperatures = torch.tensor([0.0 if params.is_greedy else 1.0 for params in batch.sampling_params])
    temperatures = temperatures.to(device, non_blocking=True)
    return scores.logits, ids, starts, counts, temperatures, NoiseKeys(*keys)


def _sent(rows: Sequence[Sequence[int]], width: int, device: torch.device) -> torch.Tensor:
    """Return rows as a padded tensor `[B, width]` on a device."""
    padded = [[*row, *[PADDING_ID] * (width - len(row))] for row in rows]
    return torch.tensor(padded, dtype=torch.int64).reshape(len(rows), width).to(device, non_blocking=True)
