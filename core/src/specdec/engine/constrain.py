"""Cuts drafted branches where a request's grammar forbids them."""

from __future__ import annotations

from dataclasses import replace

from specdec.engine.containment import Contained
from specdec.engine.sequence import Sequence
from specdec.interfaces.draft import CheckedDraft


def constrain(draft: CheckedDraft, sequences: list[Sequence]) -> CheckedDraft:
    """Return the draft without nodes that a grammar forbids; rows with q stay as they are.

    A chain of point masses is cut before its first forbidden node, a tree after its last allowed one. Nodes
    drawn from q stay and are rejected: the presence of a node must not depend on its own token.

    Args:
        draft: checked; row i belongs to `sequences[i]`.
        sequences: those that sample in this step.
    """
    rows = draft.rows
    if not any(sequence.rules is not None and sequence.rules.grammar is not None for sequence in sequences):
        return draft
    kept = list(rows)
    for index, sequence in enumerate(sequences):
        grammar = None if sequence.rules is None else sequence.rules.grammar
        if grammar is None or not rows[index] or _is_drawn(draft, index):
            continue
        parents = None if draft.parents is None else list(draft.parents[index])
        allowed: list[bool] = []
        with Contained(sequence, "following the grammar along a draft"):
            allowed = grammar.allowed_nodes(rows[index], parents)
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
