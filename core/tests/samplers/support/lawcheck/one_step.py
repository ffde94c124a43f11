"""The first token of many requests that share one distribution: for vocabularies of real size."""

from __future__ import annotations

import numpy as np
import torch

from lawcheck.steps import drafting
from lawcheck.world import batch_of
from specdec.interfaces import DraftSampling, DrawnNodes, Sampler, Scores


def first_tokens(
    sampler: Sampler,
    p: np.ndarray,
    q: np.ndarray | None,
    parents: list[int],
    count: int,
    *,
    tokens: list[int] | None = None,
    chunk: int = 2000,
) -> np.ndarray:
    """Return how often each id came first, `[V]`.

    Args:
        sampler: under test.
        p: `[V]`, the target's distribution everywhere.
        q: `[V']`, the draft's distribution everywhere; None drafts point masses.
        parents: shape of every draft.
        count: number of requests, seeds 0, 1, ...
        tokens: the drafted ids where there is no q.
        chunk: requests verified together.
    """
    size, width = len(p), len(parents)
    with np.errstate(divide="ignore"):
        row = torch.from_numpy(np.log(p)).float()
    is_chain = parents == list(range(-1, width - 1))
    seen = np.zeros(size, np.int64)
    for start in range(0, count, chunk):
        seeds = np.arange(start, min(start + chunk, count))
        number = len(seeds)
        if q is None:
            drafted = np.tile(tokens, (number, 1))
        else:
            laws = np.broadcast_to(q.astype(np.float32), (number, len(q)))
            columns = [drafting(laws, seeds, 0 * seeds + 4, node, 0) for node in range(width)]
            drafted = np.stack(columns, 1)
        drawn = None
        if q is not None:
            probs = torch.from_numpy(q).float().expand(number, width + 1, -1)
            drawn = DrawnNodes(torch.from_numpy(drafted), probs, DraftSampling.IID)
        batch = batch_of(
            np.where(drafted < size, drafted, 0).tolist(), None if is_chain else [parents] * number, drawn,
            seeds=seeds.tolist(),
        )  # fmt: skip
        logits = row.expand(number * (width + 1), -1).contiguous()
        verdict = sampler.verify(Scores(logits, logits), batch)
        first = np.array([row[0] for row in verdict.token_ids])
        assert first.max() < size
        assert all(0 <= token < size for row in verdict.token_ids for token in row)
        seen += np.bincount(first, minlength=size)
    return seen
