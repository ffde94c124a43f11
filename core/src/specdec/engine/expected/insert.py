"""Puts expected tokens into a step's draft."""

from __future__ import annotations

from dataclasses import replace

import torch

from specdec.engine.scheduler_output import SchedulerOutput
from specdec.interfaces.draft import CheckedDraft


def with_expected(draft: CheckedDraft, scheduled: SchedulerOutput) -> CheckedDraft:
    """Return a draft whose rows are the expected tokens where there are some.

    Beside rows that carry q, which are all of one width, they are no wider than these.

    Args:
        draft: of the sequences that sample; rows with expected tokens are empty.
        scheduled: the step.
    """
    rows, names = list(draft.rows), list(draft.proposers or [""] * len(draft.rows))
    parents = None if draft.parents is None else list(draft.parents)
    drawn = draft.drawn if draft.drawn is not None and draft.drawn.token_ids.shape[1] else None
    most = None if drawn is None else drawn.token_ids.shape[1]
    is_expected = torch.zeros(len(rows), dtype=torch.bool)
    for row, index in enumerate(scheduled.decoding):
        expected = scheduled.sequences[index].expected
        if index not in scheduled.expected or expected is None:
            continue
        rows[row] = tuple(scheduled.expected[index][:most])
        names[row] = expected.name
        is_expected[row] = True
        if parents is not None:
            parents[row] = tuple(range(-1, len(rows[row]) - 1))
    if drawn is not None:
        has_probs = ~is_expected.to(drawn.node_probs.device)
        drawn = replace(
            drawn, has_probs=has_probs if drawn.has_probs is None else drawn.has_probs & has_probs
        )
    return CheckedDraft(tuple(rows), None if parents is None else tuple(parents), drawn, tuple(names))
