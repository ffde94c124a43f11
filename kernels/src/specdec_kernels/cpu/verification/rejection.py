"""The samplers `probabilistic` and `block`, compiled."""

from __future__ import annotations

import numpy as np
import torch

from specdec.interfaces import Scores, Verdict, VerifyBatch
from specdec.samplers import (
    accept_uniforms,
    draw_tokens,
    pad_drafts,
    raise_not_numbers,
    verdict_of,
    with_greedy_rows,
)
from specdec_kernels.cpu.verification.schemes import compiled_scheme
from specdec_kernels.cpu.verification.stops import compiled_stops


def verify(scores: Scores, batch: VerifyBatch, *, is_block: bool) -> Verdict | None:
    """Decide as those samplers do; None for batches that need no decision."""
    if not batch.num_nodes or batch.is_all_greedy:
        return None
    padded = pad_drafts(scores, batch)
    scheme = compiled_scheme(padded, is_block=is_block)
    uniforms = accept_uniforms(batch, padded.width, padded.probs.device).numpy()
    thresholds = scheme.thresholds.double().numpy()
    links = padded.parents.numpy(), padded.num_nodes.numpy()
    stop = torch.from_numpy(compiled_stops(uniforms, thresholds, *links, scheme.rule.value))
    stops, tokens = draw_tokens(scheme.emission(stop), stop, batch)
    if np.min(tokens) < 0:
        raise_not_numbers()
    verdict = verdict_of(batch, stops, tokens)
    return verdict if batch.parents is None else with_greedy_rows(verdict, scores, batch)
