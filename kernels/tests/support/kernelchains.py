"""What the tests of verification share: chains with their q, and the verdicts of the samplers."""

from __future__ import annotations

from typing import Any

import torch

from specdec import SamplingParams, registry
from specdec.interfaces import DrawnNodes, Draws, SamplerConfig, Scores, VerifyBatch
from specdec_kernels.triton import NoiseKeys
from specdec_runtime.interfaces import ChainRules


def chosen_by_hand(
    scores: torch.Tensor, temperatures: list[float], draws: Draws, rules: ChainRules, step: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the target's ids `[R]` that proposers choose in a step from `scores [R, num_ids]`, and the laws `[R, num_ids]`."""
    scale, rows = torch.tensor(temperatures), range(len(temperatures))
    names = torch.arange(rules.num_ids) if rules.target_ids is None else torch.from_numpy(rules.target_ids)
    scaled = scores / torch.where(scale > 0, scale, 1.0)[:, None]
    if rules.is_drawn:
        drawn, _ = draws.sample(scaled, rows, step)
    else:
        wide = torch.full((len(rows), int(names[-1]) + 1), -torch.inf)
        wide[:, names] = scaled
        drawn = torch.searchsorted(names, draws.coupled(wide, rows, step + 1))
    return names[torch.where(scale > 0, drawn, scores.argmax(-1))], scaled.softmax(-1)


Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
"""Logits, drafted ids, first rows and numbers of nodes."""


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
