"""The target's most probable ids at the nodes of a step, for the proposer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from specdec.interfaces.batch import TargetTopK
from specdec.interfaces.sampler import Verdict

if TYPE_CHECKING:
    from specdec.engine.sequence import Sequence
    from specdec.engine.step import Step


@dataclass(frozen=True)
class TopK:
    """Those of one sequence: of its last committed token, then of each node."""

    token_ids: list[int]
    ids: torch.Tensor
    """`[1 + num_nodes, K]`."""
    logprobs: torch.Tensor


def top_k_of(step: Step, count: int, verdict: Verdict) -> Callable[[], dict[Sequence, TopK]]:
    """Return what finds the `count` most probable ids for the samples that get a token, none where logits are not numbers.

    It is called before the next pass, and only if the proposer is: a suspended one does not cost this.

    Args:
        step: scored; its tokens are not appended.
        count: K; less if the vocabulary has fewer ids.
        verdict: of the step; it may have them already.
    """
    scores = step.scores
    assert scores is not None
    parts: list[tuple[Sequence, list[int], slice]] = []
    for row in step.sampled:
        tokens = [int(row.sequence.token_ids[-1]), *row.nodes]
        parts.append((row.sequence, tokens, slice(row.first_logits, row.first_logits + len(tokens))))

    def found() -> dict[Sequence, TopK]:
        if verdict.top_k is None:
            logits = scores.raw_logits.float()  # [R, V]
            values, ids = logits.topk(min(count, logits.shape[1]))
            logprobs = (values - logits.logsumexp(-1, keepdim=True)).cpu()
        else:
            ids, logprobs = verdict.top_k
        ids = ids.to("cpu", torch.int32)
        valid = ~logprobs.isnan().any(-1)  # of rows that no token was drawn from the verdict knows nothing
        return {s: TopK(tokens, ids[rows], logprobs[rows]) for s, tokens, rows in parts if valid[rows].all()}

    return found


def packed_top_k(sequences: list[Sequence], kept: dict[Sequence, TopK]) -> TargetTopK | None:
    """Return what was kept as one, in the order of a batch; None if nothing was kept of its sequences."""
    parts = [(row, kept[sequence]) for row, sequence in enumerate(sequences) if sequence in kept]
    if not parts:
        return None
    packed = TargetTopK(
        rows=[row for row, part in parts for _ in part.token_ids],
        nodes=[node for _, part in parts for node in range(-1, len(part.token_ids) - 1)],
        token_ids=np.array([token for _, part in parts for token in part.token_ids], np.int32),
        top_ids=torch.cat([part.ids for _, part in parts]).numpy(),
        logprobs=torch.cat([part.logprobs for _, part in parts]).numpy(),
    )
    for array in (packed.token_ids, packed.top_ids, packed.logprobs):
        array.flags.writeable = False
    return packed
