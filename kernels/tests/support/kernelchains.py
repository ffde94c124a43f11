"""What the tests of verification share: chains with their q, and the verdicts of the samplers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from kernelcheck import POISON, keys_for

from specdec import SamplingParams, registry
from specdec.interfaces import ChainRules, DrawnNodes, Draws, SamplerConfig, Scores, VerifyBatch
from specdec_kernels.triton import ChainVerdict, NoiseKeys


def chosen_by_hand(
    scores: torch.Tensor, temperatures: list[float], draws: Draws, rules: ChainRules, step: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the target's ids `[R]` that proposers choose in a step from `scores [R, num_ids]`, and the laws `[R, num_ids]`."""
    heat, rows = torch.tensor(temperatures), range(len(temperatures))
    names = torch.arange(rules.num_ids) if rules.target_ids is None else torch.from_numpy(rules.target_ids)
    scaled = scores / torch.where(heat > 0, heat, 1.0)[:, None]
    if rules.is_drawn:
        drawn, _ = draws.sample(scaled, rows, step)
    else:
        wide = torch.full((len(rows), int(names[-1]) + 1), -torch.inf)
        wide[:, names] = scaled
        drawn = torch.searchsorted(names, draws.coupled(wide, rows, step + 1))
    return names[torch.where(heat > 0, drawn, scores.argmax(-1))], scaled.softmax(-1)


Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
"""Logits, drafted ids, first rows and numbers of nodes."""


def chains(
    nodes: int | list[int], width: int, vocab_size: int, likeness: float = 1.0
) -> tuple[Batch, torch.Tensor]:
    """Chains, and the q they are drawn from, which is `likeness` of p's logits and otherwise its own.

    Args:
        nodes: how many each request has, or how many requests with random numbers of them.
        width: K.
        vocab_size: V.
        likeness: of p and q.
    """
    counts = torch.randint(0, width + 1, (nodes,)) if isinstance(nodes, int) else torch.tensor(nodes)
    size = len(counts)
    starts = torch.cat((torch.zeros(1, dtype=torch.int64), (counts + 1).cumsum(0)[:-1]))
    logits = 2 * torch.randn(int((counts + 1).sum()), vocab_size)
    rows = (starts[:, None] + torch.arange(width)).clamp(max=len(logits) - 1)
    own = 2 * torch.randn(size, width, vocab_size)
    q = torch.softmax(likeness * logits[rows] + (1 - likeness) * own, -1)
    draft = torch.full((size, width), -1)
    if width:
        draft = torch.multinomial(q.flatten(0, 1), 1).reshape(size, width)
    draft = torch.where(torch.arange(width) < counts[:, None], draft, -1)
    return (logits, draft, starts, counts), q


def poisoned(size: int, width: int, device: torch.device) -> ChainVerdict:
    """A verdict to write to, full of numbers that are none of its."""
    shapes = (size,), (size, width + 1), (size,)
    return ChainVerdict._make(torch.full(shape, POISON, device=device) for shape in shapes)


def checked(
    verify: Callable[..., ChainVerdict],
    reference: Callable[..., ChainVerdict],
    key: int,
    batch: Batch,
    temperatures: list[float],
    device: torch.device,
    q: torch.Tensor | None = None,
    has_probs: torch.Tensor | None = None,
    draft_ids: torch.Tensor | None = None,
    keys: NoiseKeys | None = None,
    **options: Any,
) -> ChainVerdict:
    """Run on `device` into poisoned outputs, compare with the reference, and return what came out."""
    size, width = batch[1].shape
    keys = keys_for(size, key) if keys is None else keys
    inputs = (*batch, torch.tensor(temperatures, dtype=torch.float32))
    out = poisoned(size, width, device)
    there = [None if tensor is None else tensor.to(device) for tensor in (q, has_probs, draft_ids)]
    named = dict(zip(("draft_probs", "has_probs", "draft_ids"), there, strict=True))
    own = NoiseKeys(*(each.to(device) for each in keys))
    assert verify(*(tensor.to(device) for tensor in inputs), own, **named, out=out, **options) is out
    expected = reference(*inputs, keys, q, has_probs, draft_ids)
    assert [tensor.tolist() for tensor in out] == [tensor.tolist() for tensor in expected]
    return out


def of_core(
    method: str,
    batch: Batch,
    temperatures: list[float],
    keys: NoiseKeys,
    parents: torch.Tensor | None = None,
    **fields: Any,
) -> list[list[list[int]]]:
    """The verdict of one of the samplers: accepted nodes and emitted tokens of every request."""
    logits, draft, starts, counts = batch
    spans = zip(starts.tolist(), counts.tolist(), temperatures, strict=True)
    packed = [logits[start : start + count + 1] / (temperature or 1.0) for start, count, temperature in spans]
    rows = [tuple(row[:count]) for row, count in zip(draft.tolist(), counts.tolist(), strict=True)]
    links = None
    if parents is not None:
        links = tuple(tuple(row[:n]) for row, n in zip(parents.tolist(), counts.tolist(), strict=True))
    params = [SamplingParams(temperature=temperature) for temperature in temperatures]
    seeds, positions, samples = (key.tolist() for key in keys)
    verdict = registry.sampler(method)(SamplerConfig()).verify(
        Scores(torch.cat(packed), logits),
        VerifyBatch(
            rows, positions, seeds, samples, params, links, DrawnNodes(draft, **fields) if fields else None
        ),
    )
    return [[list(row) for row in each] for each in (verdict.accepted_nodes, verdict.token_ids)]
