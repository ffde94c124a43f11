"""What penalties count of all requests, also along drafts whose ids the host has not read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from specdec.interfaces import Occurrences, UnreadIds, UnreadRow
from specdec.runner import sent_together
from specdec_kernels.triton.penalise import PathRows, Texts

Int64s = npt.NDArray[np.int64]
Text = tuple[int, Int64s, Occurrences]
"""A request's first row, which rows from there on are changed, and what is counted."""


def counted(texts: Sequence[Text], device: torch.device) -> tuple[Texts, PathRows]:
    """Return what `penalise` reads on a device, sent by one transfer; see `RowOperations.penalise`."""
    unread = _unread(texts)
    all_counts = [each for _, _, each in texts]
    sizes = [0, *(len(each.ids) for each in all_counts)]
    rows, requests, sources = _paths(texts, unread)
    arrays: list[npt.NDArray[Any]] = [
        np.concatenate([each.ids for each in all_counts]),
        np.concatenate([each.counts for each in all_counts]),
        np.cumsum(sizes),
        np.array([each.amounts for each in all_counts], np.float32).T,
        rows,
        requests,
        sources,
    ]
    if unread is None:
        arrays.append(np.array([token for each in all_counts for token in each.nodes], np.int64))
    sent = sent_together(arrays, device)
    sent += [] if unread is None else [unread.scored(device)]
    return Texts(*sent[:4]), PathRows(*sent[4:])


def _unread(texts: Sequence[Text]) -> UnreadIds | None:
    """Return the ids of the drafts if the host has read none of them."""
    drafts = [each.nodes for _, _, each in texts if len(each.nodes)]
    found = {
        id(row.ids): row.ids for row in drafts if isinstance(row, UnreadRow) and row.ids.num_outside is None
    }
    is_one = len(found) == 1 and all(isinstance(row, UnreadRow) for row in drafts)
    return next(iter(found.values())) if is_one else None


def _paths(texts: Sequence[Text], unread: UnreadIds | None) -> tuple[Int64s, Int64s, Int64s]:
    """Return rows `[P]`, requests `[P]`, and the places `[P, D]` of the tokens on the path to each row among drafted ids."""
    rows, requests, paths = list[int](), list[int](), list[list[int]]()
    num_known = 0
    for request, (first, changed, each) in enumerate(texts):
        start = num_known
        if unread is not None and isinstance(each.nodes, UnreadRow):
            start = each.nodes.row * unread.width
        num_known += len(each.nodes)
        behind: list[list[int]] = [[]]
        for node in range(len(each.nodes)):
            parent = node - 1 if each.parents is None else each.parents[node]
            behind.append([*behind[parent + 1], start + node])
        rows += (first + changed).tolist()
        requests += [request] * len(changed)
        paths += [behind[row] for row in changed]
    sources = np.full((len(paths), max(map(len, paths), default=0)), -1, np.int64)
    for place, path in zip(sources, paths, strict=True):
        place[: len(path)] = path
    return np.array(rows, np.int64), np.array(requests, np.int64), sources
