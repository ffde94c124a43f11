"""The `strict` sampler, compiled."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import torch

from specdec import SamplingParams
from specdec.interfaces import Scores, Verdict, VerifyBatch
from specdec.logits import with_cuts
from specdec_kernels.cpu.verification.walk import walk


class Walk:
    """Verifies chains or trees along the target's drawn or best tokens. None for a batch without requests."""

    finds_invalid_rows = True
    cuts = True

    def __call__(self, scores: Scores, batch: VerifyBatch) -> Verdict | None:
        """Decide a batch; see `Verify`."""
        rows, parents, size = batch.nodes, batch.parents, len(batch.nodes)
        if not size:
            return None
        logits = scores.logits if scores.logits.dtype is torch.float64 else scores.logits.float()
        counts = [*map(len, rows)]
        width = max(counts)
        drafted = np.full((size, width), -1, np.int64)
        links = drafted[:, :0] if parents is None else drafted.copy()
        for i, row in enumerate(rows if width else ()):
            drafted[i, : len(row)] = row
            if parents is not None:
                links[i, : len(row)] = parents[i]
        requests = zip(
            accumulate((1 + count for count in counts[:-1]), initial=0), counts, batch.seeds, batch.sample_indices,
            batch.num_tokens, (p.is_greedy for p in batch.sampling_params), strict=True,
        )  # fmt: skip
        out = np.empty((size, 2 * width + 2), np.int64)
        given = np.array([*requests], np.int64), drafted, links, out
        uncut = np.array([(logits.shape[1], 1.0)] * size)
        cuts = (
            uncut if scores.is_cut else np.array([_cuts(p, logits.shape[1]) for p in batch.sampling_params])
        )
        if not walk(logits.numpy(), cuts, *given):  # as torch rounds, then
            walk(with_cuts(scores, batch).logits.numpy(), uncut, *given)
        found = out.tolist()
        accepted = [row[1 : 1 + row[0]] for row in found]
        emitted = [row[1 + width : 2 + width + row[0]] for row in found]
        is_valid: list[bool] | None = None
        for i, path in enumerate(accepted):
            if emitted[i][-1] < 0:  # from the row after this path nothing can be drawn
                emitted[i][-1] = 0
                is_valid = is_valid or [True] * len(logits)
                is_valid[batch.row_of(i, path[-1] if path else -1)] = False
        return Verdict(accepted, emitted, is_valid)


def _cuts(params: SamplingParams, vocab_size: int) -> tuple[int, float]:
    """Return top-k and top-p; V and 1 keep all."""
    return params.top_k if 0 < params.top_k < vocab_size else vocab_size, params.top_p
