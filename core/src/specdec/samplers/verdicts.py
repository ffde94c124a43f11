"""Builds verdicts from decisions."""

from __future__ import annotations

from collections.abc import Sequence

from specdec.interfaces.sampler import Verdict, VerifyBatch
from specdec.interfaces.scorer import Scores
from specdec.samplers.paths import greedy_verdict, path_to


def verdict_of(batch: VerifyBatch, stops: Sequence[int], tokens: Sequence[int]) -> Verdict:
    """Return the verdict of paths that end at given nodes, each with the token after it.

    Args:
        batch: the drafts.
        stops: `[B]` last accepted node of each row, -1 for none.
        tokens: `[B]` token after it.
    """
    if batch.parents is None:
        paths = [list(range(stop + 1)) for stop in stops]
    else:
        paths = [path_to(stop, parents) for parents, stop in zip(batch.parents, stops, strict=True)]
    emitted = [
        [*(row[node] for node in path), token]
        for row, path, token in zip(batch.nodes, paths, tokens, strict=True)
    ]
    return Verdict(paths, emitted)


def with_greedy_rows(verdict: Verdict, scores: Scores, batch: VerifyBatch) -> Verdict:
    """Return a verdict on trees in which rows of temperature 0 take their longest argmax paths.

    A scheme accepts only the first of equal siblings, which is right for drawn tokens but not for greedy
    ones.
    """
    is_greedy = [params.is_greedy for params in batch.sampling_params]
    if not any(is_greedy):
        return verdict
    best = greedy_verdict(scores, batch)
    nodes, tokens = list(verdict.accepted_nodes), list(verdict.token_ids)
    for row, is_row_greedy in enumerate(is_greedy):
        if is_row_greedy:
            nodes[row], tokens[row] = best.accepted_nodes[row], best.token_ids[row]
    return Verdict(nodes, tokens)
