"""Drafts in the form that SGLang verifies: as many tokens of each request, and who is an ancestor of whom."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def laid_out(
    last_tokens: Sequence[int],
    rows: Sequence[Sequence[int]],
    parents: Sequence[Sequence[int]] | None,
    width: int,
) -> tuple[Ids, Mask]:
    """Return the tokens to verify and their mask.

    A row begins with the last committed token. A short draft is filled up with a chain below its last node, so that no two
    siblings are equal, which sampled verification would count twice.

    Args:
        last_tokens: `[B]` the last committed token of each request.
        rows: `[B]` drafted tokens, fewer than `width`.
        parents: `[B]` the parent of each node, -1 for the last committed token; None for chains.
        width: tokens verified of each request.

    Returns:
        ids `[B, width]`, and a mask `[B, width, width]` that is True where column j is an ancestor of row i, or i itself.
    """
    ids = np.repeat(np.asarray(last_tokens, np.int64)[:, None], width, 1)
    mask = np.empty((len(rows), width, width), np.bool_)
    mask[:] = np.tri(width, dtype=np.bool_)
    for place, row in enumerate(rows):
        ids[place, 1 : 1 + len(row)] = row
        above = None if parents is None else parents[place]
        if above is not None and any(parent != node - 1 for node, parent in enumerate(above)):
            mask[place] = _tree_mask([-1, *(parent + 1 for parent in above)], width)
    return ids, mask


def _tree_mask(parents: list[int], width: int) -> Mask:
    parents = [*parents, *range(len(parents) - 1, width - 1)]
    mask = np.eye(width, dtype=np.bool_)
    for node, parent in enumerate(parents[1:], 1):
        mask[node] |= mask[parent]
    return mask
