"""What penalties count of all requests, also along drafts whose nodes the host has not read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from specdec.interfaces import Along, Occurrences, UnreadIds, UnreadRow
from specdec_kernels.triton.penalise import PathRows, Texts

Int64s = npt.NDArray[np.int64]
Text = tuple[int, Int64s, Occurrences]
"""A request's first row, which rows from there on are changed, and what is counted."""


class Counted:
    """What `penalise` reads of requests; see `RowOperations.penalise`.

    Args:
        texts: the requests.
        along: what it is sent with.
    """

    def __init__(self, texts: Sequence[Text], along: Along) -> None:
        self._unread, self._along = _unread(texts), along
        counts = [each for _, _, each in texts]
        nodes = [each.nodes for each in counts]
        self._path_len = max(map(len, nodes), default=0)
        sizes = [0, *(len(each.ids) for each in counts)]
        amounts = np.array([each.amounts for each in counts], np.float32).T
        arrays: list[npt.NDArray[Any]] = [
            np.concatenate([each.ids for each in counts]),
            np.concatenate([each.counts for each in counts]),
            np.cumsum(sizes),
            np.ascontiguousarray(amounts),
            *_rows(texts, self._unread),
        ]
        if self._unread is None:
            for row in nodes:
                if isinstance(row, UnreadRow) and len(row):
                    row.ids.read()
            arrays.append(_joined(nodes))
            parents = [each.parents for each in counts if each.parents is not None]
            if len(parents) == len(counts):
                arrays.append(_joined(parents))
        along.add("penalties", arrays)

    def on(self, device: torch.device) -> tuple[Texts, PathRows]:
        """Return it on the device; drafted nodes that are there stay."""
        sent = self._along.on(device, "penalties")
        rows, requests, firsts, nodes, *drafts = sent[4:]
        if self._unread is not None:
            given = self._unread.nodes.to(device)
            drafts = [*given.reshape(len(given), -1)]
        parents = drafts[1] if len(drafts) > 1 else None
        return Texts(*sent[:4]), PathRows(rows, requests, firsts, nodes, drafts[0], parents, self._path_len)


def _unread(texts: Sequence[Text]) -> UnreadIds | None:
    """Return the ids of the drafts if the host has read none of them."""
    drafts = [each.nodes for _, _, each in texts if len(each.nodes)]
    found = {
        id(row.ids): row.ids for row in drafts if isinstance(row, UnreadRow) and row.ids.num_outside is None
    }
    is_one = len(found) == 1 and all(isinstance(row, UnreadRow) for row in drafts)
    return next(iter(found.values())) if is_one else None


def _rows(texts: Sequence[Text], unread: UnreadIds | None) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Return the rows `[P]` of all requests, the request of each, its draft's first place, and its node."""
    counts, num_known, firsts = [len(changed) for _, changed, _ in texts], 0, list[int]()
    for _, _, each in texts:
        row = each.nodes if isinstance(each.nodes, UnreadRow) and unread is not None else None
        firsts.append(num_known if row is None else row.row * row.ids.width)
        num_known += len(each.nodes)
    rows = np.concatenate([first + changed for first, changed, _ in texts])
    nodes = np.concatenate([changed - 1 for _, changed, _ in texts])
    return rows, np.arange(len(texts)).repeat(counts), np.array(firsts).repeat(counts), nodes


def _joined(rows: Sequence[Sequence[int]]) -> Int64s:
    """Return the numbers of all rows; an empty one is not asked, which would wait for a device."""
    return np.array([number for row in rows if len(row) for number in row], np.int64)
