"""The `strict` sampler, compiled."""

from __future__ import annotations

import numpy as np
import torch

from specdec.interfaces import CheckedDraft, Scores, Verdict, VerifyBatch
from specdec_kernels.cpu.verification.walk import walk


class Walk:
    """Verifies chains or trees along the target's drawn or best tokens. None for a batch without requests."""

    takes_any_rows = True

    def __call__(self, scores: Scores, draft: CheckedDraft, batch: VerifyBatch) -> Verdict | None:
        """Decide a batch; see `Verify`."""
        rows, parents, size = draft.rows, draft.parents, len(draft.rows)
        if not size:
            return None
        logits = scores.logits if scores.logits.dtype is torch.float64 else scores.logits.float()
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
        is_sound: list[bool] | None = None
        accepted = [row[:n] for row, n in zip(nodes.tolist(), counts.tolist(), strict=True)]
        emitted = [row[: n + 1] for row, n in zip(tokens.tolist(), counts.tolist(), strict=True)]
        for i, path in enumerate(accepted):
            if emitted[i][-1] < 0:  # from the row after this path nothing can be drawn
                emitted[i][-1] = 0
                is_sound = is_sound or [True] * len(logits)
                is_sound[scores.row_of(i, path[-1] if path else -1)] = False
        return Verdict(accepted, emitted, is_sound)
