"""What penalties count of all requests, also along drafts whose nodes the host has not read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from specdec.interfaces import Occurrences, Transfer
from specdec_kernels.triton.penalise import PathRows, Texts

Int64s = npt.NDArray[np.int64]
Text = tuple[int, Int64s, Occurrences]
"""A request's first row, which rows from there on are changed, and what is counted."""


class Counted:
    """What `penalise` reads of requests; see `RowOperations.penalise`.

    Args:
        texts: the requests.
        transfer: what it is sent with.
    """

    def __init__(self, texts: Sequence[Text], transfer: Transfer) -> None:
        self._transfer, counts = transfer, [each for _, _, each in texts]
        blocks = [each.block for each in counts]
        self._path_len = max((block.num_nodes for block in blocks), default=0)
        # Of the drafts of a step a device has all, or none.
        self._device_nodes = next((block.device_nodes for block in blocks if block.num_nodes), None)
        sizes = [0, *(len(each.ids) for each in counts)]
        amounts = np.array([each.amounts for each in counts], np.float32).T
        arrays: list[npt.NDArray[Any]] = [
            np.concatenate([each.ids for each in counts]),
            np.concatenate([each.counts for each in counts]),
            np.cumsum(sizes),
            np.ascontiguousarray(amounts),
            *_rows(texts),
        ]
        if self._device_nodes is None:
            arrays.append(_joined([block.nodes for block in blocks]))
            parents = [block.parents for block in blocks if block.parents is not None]
            if len(parents) == len(blocks):
                arrays.append(_joined(parents))
        transfer.add("penalties", arrays)

    def on(self, device: torch.device) -> tuple[Texts, PathRows]:
        """Return it on the device; drafted nodes that are there stay."""
        sent = self._transfer.on(device, "penalties")
        rows, requests, firsts, nodes, *drafts = sent[4:]
        if self._device_nodes is not None:
            given = self._device_nodes.nodes.to(device)
            drafts = [*given.reshape(len(given), -1)]
        parents = drafts[1] if len(drafts) > 1 else None
        return Texts(*sent[:4]), PathRows(rows, requests, firsts, nodes, drafts[0], parents, self._path_len)


def _rows(texts: Sequence[Text]) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Return the rows `[P]` of all requests, the request of each, its draft's first place, and its node."""
    counts, num_known, firsts = [len(changed) for _, changed, _ in texts], 0, list[int]()
    for _, _, each in texts:
        block, there = each.block, each.block.device_nodes
        firsts.append(num_known if there is None else block.device_row * there.width)
        num_known += len(block.nodes)
    rows = np.concatenate([first + changed for first, changed, _ in texts])
    nodes = np.concatenate([changed - 1 for _, changed, _ in texts])
    return rows, np.arange(len(texts)).repeat(counts), np.array(firsts).repeat(counts), nodes


def _joined(rows: Sequence[Sequence[int]]) -> Int64s:
    return np.array([number for row in rows for number in row], np.int64)
