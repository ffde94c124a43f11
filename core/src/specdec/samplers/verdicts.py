"""Builds verdicts from the tokens that the target chooses."""

from __future__ import annotations

from collections.abc import Sequence

from specdec.interfaces.draft import CheckedDraft
from specdec.interfaces.sampler import Verdict
from specdec.interfaces.scorer import Scores
from specdec.noise import row_operations
from specdec.samplers.tree import follow


def greedy_verdict(scores: Scores, draft: CheckedDraft) -> Verdict:
    """Return the longest paths of argmax tokens; ties go to the lowest id."""
    best = row_operations(scores.logits.device).best_ids(scores.logits)
    return follow_all(best, scores, draft)


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


def raise_not_numbers() -> None:
    """Raise the error for logits that are not numbers."""
    raise FloatingPointError("the target's logits are not numbers; nothing can be sampled from them")
