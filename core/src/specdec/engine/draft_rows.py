"""The draft of a step before it is scored: expected tokens come in, and what a grammar forbids goes out."""

from __future__ import annotations

from dataclasses import replace

import torch

from specdec.config.notices import draft_ends
from specdec.engine.scheduler import SchedulerOutput
from specdec.engine.sequence import Sequence
from specdec.errors import ConfigError
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
        own = drawn.has_probs
        drawn = replace(drawn, has_probs=~is_expected if own is None else own & ~is_expected.to(own.device))
    return CheckedDraft(tuple(rows), None if parents is None else tuple(parents), drawn, tuple(names))


def constrain(draft: CheckedDraft, sequences: list[Sequence]) -> CheckedDraft:
    """Return the draft without nodes that a grammar forbids; rows with q stay as they are.

    A chain of point masses is cut before its first forbidden node, a tree after its last allowed one. Nodes
    drawn from q stay and are rejected: the presence of a node must not depend on its own token.

    Args:
        draft: checked; row i belongs to `sequences[i]`.
        sequences: those that sample in this step.
    """
    rows = draft.rows
    kept = list(rows)
    for index, sequence in enumerate(sequences):
        grammar = None if sequence.rules is None else sequence.rules.grammar
        if grammar is None or not rows[index] or _is_drawn(draft, index):
            continue
        parents = None if draft.parents is None else list(draft.parents[index])
        allowed: list[bool] = []
        try:
            allowed = grammar.allowed_nodes(rows[index], parents)
        except ConfigError:
            pass  # the text needs too much work, as its mask says next
        except BaseException as error:
            draft_ends("following a grammar", error)
        length = len(allowed) if parents is not None else (*allowed, False).index(False)
        while length and not allowed[length - 1]:
            length -= 1
        kept[index] = rows[index][:length]
    links = draft.parents
    if links is not None:
        links = tuple(above[: len(row)] for above, row in zip(links, kept, strict=True))
    return replace(draft, rows=tuple(kept), parents=links, unread=None)


def _is_drawn(draft: CheckedDraft, index: int) -> bool:
    drawn = draft.drawn
    return drawn is not None and (drawn.has_probs is None or bool(drawn.has_probs[index]))
