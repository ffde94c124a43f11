"""The `strict` sampler, compiled."""

from __future__ import annotations

import numpy as np
import torch

from specdec.interfaces import CheckedDraft, Scores, Verdict, VerifyBatch
from specdec.samplers import raise_not_numbers
from specdec_kernels.cpu.verification.walk import walk


def verify(scores: Scores, draft: CheckedDraft, batch: VerifyBatch) -> Verdict | None:
    """Draw along the accepted path only; None for greedy batches, which need no draws."""
    if batch.is_all_greedy:
        return None
    rows = draft.rows
    parents = draft.parents
    logits = scores.logits if scores.logits.dtype is torch.float64 else scores.logits.float()
    size = len(rows)
    width = max(map(len, rows))
    drafted = np.full((size, width + 1), -1, np.int64)
    links = np.empty((size, width + 1), np.int64)
    links[:] = np.arange(-1, width)
    for i, row in enumerate(rows):
        drafted[i, : len(row)] = row
        if parents is not None:
            links[i, : len(row)] = parents[i]
    nodes = np.empty((size, width + 1), np.int64)
    tokens = np.full((size, width + 1), -1, np.int64)
    counts = np.empty(size, np.int64)
    walk(
        logits.numpy(), np.array([p.is_greedy for p in batch.sampling_params]), np.array(scores.row_starts),
        np.array([len(row) for row in rows]), drafted, links,
        np.array(batch.seeds), np.array(batch.sample_indices), np.array(batch.num_tokens), nodes, tokens, counts,
    )  # fmt: skip
    if (tokens[:, 0] < 0).any():
        raise_not_numbers()
    lengths = counts.tolist()
    node_rows, token_rows = nodes.tolist(), tokens.tolist()
    return Verdict(
        [node_rows[i][:n] for i, n in enumerate(lengths)],
        [token_rows[i][: n + 1] for i, n in enumerate(lengths)],
    )
