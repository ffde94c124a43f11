"""The target's probabilities from p-logits."""

from __future__ import annotations

import numpy as np
import torch

from specdec.interfaces import Scores, VerifyBatch
from specdec.samplers import raise_not_numbers


def target_probs(scores: Scores, batch: VerifyBatch) -> torch.Tensor:
    """Return p `[R, V]` in float32 (float64 for float64 logits); greedy rows are one-hot at their argmax.

    Raises:
        FloatingPointError: if a row is not made of numbers. Checked only on the CPU: elsewhere it would cost
            a synchronisation.
    """
    logits = scores.logits
    probs = torch.softmax(logits if logits.dtype is torch.float64 else logits.float(), -1).contiguous()
    greedy = [
        np.arange(start, start + count + 1)
        for start, count, params in zip(batch.row_starts, batch.num_nodes, batch.sampling_params, strict=True)
        if params.is_greedy
    ]
    if greedy:
        rows = torch.from_numpy(np.concatenate(greedy)).to(probs.device)
        best = logits[rows].argmax(-1)
        probs[rows] = 0.0
        probs[rows, best] = 1.0
    if probs.device.type == "cpu" and not np.isfinite(probs.numpy()[:, 0]).all():
        raise_not_numbers()
    return probs
