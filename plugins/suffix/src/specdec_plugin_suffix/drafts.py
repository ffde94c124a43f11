"""Converts drafts of the trees to a `Draft`."""

from __future__ import annotations

from collections.abc import Sequence

from specdec.interfaces import Draft
from specdec_plugin_suffix.cache import EMPTY, SuffixDraft


def chains(found: Sequence[SuffixDraft | None]) -> Draft:
    """Return chains `[B, N]` with their confidence.

    The probabilities of a `SuffixDraft` are those of whole paths, by counts. A node's probability given its parent is the
    quotient of the two.
    """
    tokens: list[list[int]] = []
    confidence: list[list[float]] = []
    for draft in found:
        probs = (draft or EMPTY).probs
        tokens.append((draft or EMPTY).token_ids)
        confidence.append([after / before for before, after in zip([1.0, *probs], probs, strict=False)])
    return Draft.from_lists(tokens, confidence=confidence)


def trees(found: Sequence[SuffixDraft | None], max_depth: Sequence[int] | None = None) -> Draft:
    """Return trees `[B, N]` with their confidence, likeliest node first.

    Args:
        found: `[B]` the library's drafts.
        max_depth: `[B]` maximum depth, None for no limit; deeper nodes are dropped.
    """
    rows = [draft or EMPTY for draft in found]
    if max_depth is not None:
        rows = [_cut(draft, most) for draft, most in zip(rows, max_depth, strict=True)]
    return Draft.from_lists(
        [draft.token_ids for draft in rows],
        [draft.parents for draft in rows],
        confidence=[
            [
                prob / (draft.probs[parent] if parent >= 0 else 1.0)
                for prob, parent in zip(draft.probs, draft.parents, strict=True)
            ]
            for draft in rows
        ],
    )


def _cut(draft: SuffixDraft, max_depth: int) -> SuffixDraft:
    """Drop nodes deeper than `max_depth`; usually there are none."""
    if len(draft.token_ids) <= max_depth:
        return draft
    depths: list[int] = []
    for parent in draft.parents:
        depths.append(1 if parent < 0 else depths[parent] + 1)
    kept = [node for node, depth in enumerate(depths) if depth <= max_depth]
    moved = {node: index for index, node in enumerate(kept)} | {-1: -1}
    return SuffixDraft(
        token_ids=[draft.token_ids[node] for node in kept],
        parents=[moved[draft.parents[node]] for node in kept],
        probs=[draft.probs[node] for node in kept],
    )
