"""Builds verdicts from decisions."""

from __future__ import annotations

from collections.abc import Sequence

from specdec.interfaces.draft import CheckedDraft
from specdec.interfaces.sampler import Verdict, VerifyBatch
from specdec.interfaces.scorer import Scores
from specdec.noise import row_operations
from specdec.samplers.tree import follow, path_to


def verdict_of(draft: CheckedDraft, stops: Sequence[int], tokens: Sequence[int]) -> Verdict:
    """Return the verdict of paths that end at given nodes, each with the token after it.

    Args:
        draft: a checked draft.
        stops: `[B]` last accepted node of each row, -1 for none.
        tokens: `[B]` token after it.
    """
    rows = draft.rows
    if draft.parents is None:
        paths = [list(range(stop + 1)) for stop in stops]
    else:
        paths = [path_to(stop, parents) for parents, stop in zip(draft.parents, stops, strict=True)]
    emitted = [
        [*(row[node] for node in path), token] for row, path, token in zip(rows, paths, tokens, strict=True)
    ]
    return Verdict(paths, emitted)


def greedy_verdict(scores: Scores, draft: CheckedDraft) -> Verdict:
    """Return the longest paths of argmax tokens; ties go to the lowest id."""
    best = row_operations(scores.logits.device).best_ids(scores.logits)
    return follow_all(best, scores, draft)


def with_greedy_rows(verdict: Verdict, scores: Scores, draft: CheckedDraft, batch: VerifyBatch) -> Verdict:
    """Return a verdict on trees in which rows of temperature 0 take their longest argmax paths.

    A scheme accepts only the first of equal siblings, which is right for drawn tokens but not for greedy
    ones.
    """
    is_greedy = [params.is_greedy for params in batch.sampling_params]
    if not any(is_greedy):
        return verdict
    best = greedy_verdict(scores, draft)
    nodes, tokens = list(verdict.accepted_nodes), list(verdict.token_ids)
    for row, is_row_greedy in enumerate(is_greedy):
        if is_row_greedy:
            nodes[row], tokens[row] = best.accepted_nodes[row], best.token_ids[row]
    return Verdict(nodes, tokens)


def follow_all(drawn: Sequence[int], scores: Scores, draft: CheckedDraft) -> Verdict:
    """Return the verdict of paths along drawn tokens, one token for every row of the logits.

    Args:
        drawn: `[R]`.
        scores: maps requests to rows.
        draft: a checked draft.
    """
    rows = draft.rows
    parents = draft.parents
    nodes_out: list[list[int]] = []
    tokens_out: list[list[int]] = []
    for i, row in enumerate(rows):
        start = scores.row_starts[i]
        drawn_here = list(drawn[start : start + len(row) + 1])
        nodes, emitted = follow(drawn_here, row, None if parents is None else parents[i])
        nodes_out.append(nodes)
        tokens_out.append(emitted)
    return Verdict(nodes_out, tokens_out)
