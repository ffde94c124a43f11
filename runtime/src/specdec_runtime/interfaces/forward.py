"""One packed forward pass: the rows of several requests, concatenated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from specdec.interfaces import DeviceNodes, NeedsTokens, Transfer, UnreadVerdict, sent_together

Int64s = npt.NDArray[np.int64]


@dataclass(slots=True)
class Segment:
    """The rows of one request in a packed pass. Position p is in slot `first_slot + p`, but for rows in `KVCache.shared`."""

    row: int
    """First row in the packed pass."""
    num_rows: int
    first_slot: int
    """Cache slot of the request's position 0, or where it would be if rows are shared; no other request's."""
    num_cached: int
    """Rows of the request that are already in the cache; the new rows follow them."""
    tree_mask: torch.Tensor | None = None
    """`[num_rows, num_branched + num_rows]` bool, on the host: which cached branch rows, and which new rows, each new row
    sees. None means a chain."""
    depths: torch.Tensor | None = None
    """`[num_rows]` int64, on the host: position of each row, relative to the first position after the rows that all new
    rows see. None for a chain."""
    num_branched: int = 0
    """Number of cached rows, the last ones, that are tree branches not visible to every new row."""
    owner: object | None = None
    """The request, by which layers that keep states find its own; None for one whose rows are not continued."""
    num_drafted: int = 0
    """Number of drafted rows, the last ones: a later pass of the request may overwrite them."""
    adapter: object | None = None
    """What the module's own forward adds for the rows, as the runner's adapters loaded it; None for nothing."""

    @property
    def kv_len(self) -> int:
        """Rows in the cache once this pass has written its own."""
        return self.num_cached + self.num_rows

    def set_parents(self, parents: Sequence[int]) -> Int64s:
        """Set mask and depths of a tree of drafted rows behind a chain; returns the positions of all rows.

        Args:
            parents: `[num_drafted]` see `CheckedDraft.parents`.
        """
        first = self.num_rows - self.num_drafted
        visible = np.tri(self.num_rows, dtype=bool)
        for row, parent in enumerate(parents, first):
            visible[row] = visible[first + parent]
            visible[row, row] = True
        depths: Int64s = visible.sum(1) - 1
        self.tree_mask, self.depths = torch.from_numpy(visible), torch.from_numpy(depths)
        return depths + self.num_cached


class HostRows(NamedTuple):
    """The numbers of a pass on the host; fields as in `PackedBatch`."""

    token_ids: Int64s
    """A negative number `-1 - i` stands for the i-th of `PackedBatch.drafted`."""
    positions: Int64s
    slots: Int64s
    logits_rows: Int64s | None


@dataclass(slots=True)
class PackedBatch:
    """Inputs of one forward pass over T rows."""

    token_ids: torch.Tensor
    """`[T]` int64."""
    positions: torch.Tensor
    """`[T]` int64; a tree node's position is its request's committed length plus its depth."""
    segments: list[Segment]
    slots: torch.Tensor | None
    """`[T]` int64 cache slot of each row; None if there is one segment."""
    logits_rows: torch.Tensor | None
    """`[R]` int64 rows whose logits are needed; None means all."""
    longest: int | None = None
    """All positions are below this; None if they are below the longest `Segment.kv_len`, as in every pass but a probe."""
    has_adapters: bool = False
    """Whether a segment has an adapter; the pass is then for the module's own forward."""
    host: HostRows | None = field(default=None, init=False)
    """The same numbers, of a pass made from them."""
    device: torch.device = field(default=torch.device("cpu"), init=False)
    """With `host`: where the tensors are."""
    is_sent: bool = field(default=True, init=False)
    """Whether there are tensors; else there is `host`, until `send` is called."""
    drafted: DeviceNodes | None = field(default=None, init=False)
    """With `host`: nodes on the device that the host has not read; None if it knows all."""
    transfer: Transfer | None = field(default=None, init=False)
    """With `host`: what is sent with it, for what follows the pass."""
    behind: UnreadVerdict | None = field(default=None, init=False)
    """With `host`: the verdict that its rows are behind; only recorded passes can do without the host's knowing it."""

    @classmethod
    def of_rows(
        cls,
        rows: HostRows,
        segments: list[Segment],
        device: torch.device,
        drafted: DeviceNodes | None = None,
        transfer: Transfer | None = None,
        behind: UnreadVerdict | None = None,
    ) -> PackedBatch:
        """Return a pass whose tensors are on the host; on a device they have to be sent."""
        batch: PackedBatch = object.__new__(cls)
        batch.segments, batch.longest, batch.host, batch.device = segments, None, rows, device
        batch.has_adapters = False
        batch.drafted, batch.transfer, batch.behind, batch.is_sent = (
            drafted,
            transfer,
            behind,
            device.type == "cpu",
        )
        if device.type == "cpu":  # which shares the host's memory
            batch.token_ids = torch.from_numpy(rows.token_ids)
            if drafted is not None:
                batch.read_trees()
                batch.token_ids = _with_drafted(batch.token_ids, drafted)
            if behind is not None:
                batch._take_last_ids(behind, torch.tensor([segment.row for segment in segments]))
            batch.positions = torch.from_numpy(rows.positions)
            batch.slots = None if len(segments) == 1 else torch.from_numpy(rows.slots)
            batch.logits_rows = None if rows.logits_rows is None else torch.from_numpy(rows.logits_rows)
        return batch

    @property
    def num_rows(self) -> int:
        """T."""
        return len(self.token_ids if self.host is None else self.host.token_ids)

    @property
    def has_unread_trees(self) -> bool:
        """Whether there are trees whose parents the host has not read; `segments` and positions are then those of chains."""
        is_tree = self.drafted is not None and self.drafted.is_tree
        return is_tree and any(s.num_drafted and s.tree_mask is None for s in self.segments)

    def read_trees(self) -> None:
        """Read the parents of unread trees, for who does not take them from the device."""
        if not self.has_unread_trees:
            return
        ids, host = self.drafted, self.host
        assert ids is not None and host is not None
        parents = ids.read()[1] or ()
        for segment in self.segments:
            if segment.num_drafted:
                end = segment.row + segment.num_rows
                row = (-1 - host.token_ids[end - 1]) // ids.width
                host.positions[segment.row : end] = segment.set_parents(parents[row])

    def send(self) -> None:
        """Send the numbers, all together, unless they are sent; recorded passes take them from `host` instead.

        Raises:
            NeedsTokens: if they are known only to a recorded pass.
        """
        rows, is_single = self.host, len(self.segments) == 1
        if self.is_sent or rows is None:
            return
        if self.behind is not None and self.behind.most:
            raise NeedsTokens
        self.read_trees()
        arrays: list[npt.NDArray[Any]] = [rows.token_ids, rows.positions]
        arrays += [] if is_single else [rows.slots]
        arrays += [] if rows.logits_rows is None else [rows.logits_rows]
        if self.transfer is not None:
            arrays.append(self.transfer.packed)
        if self.behind is not None:
            arrays.append(np.array([segment.row for segment in self.segments], np.int64))
        tensors = iter(sent_together(arrays, self.device))
        ids, self.positions = next(tensors), next(tensors)
        self.token_ids = ids if self.drafted is None else _with_drafted(ids, self.drafted)
        self.slots = None if is_single else next(tensors)
        self.logits_rows = None if rows.logits_rows is None else next(tensors)
        if self.transfer is not None:
            self.transfer.arrive(next(tensors))
        if self.behind is not None:
            self._take_last_ids(self.behind, next(tensors))
        self.is_sent = True

    def _take_last_ids(self, behind: UnreadVerdict, first_rows: torch.Tensor) -> None:
        """Put the tokens of a verdict without drafts into the first rows `[B]` of the requests."""
        self.token_ids = self.token_ids.index_copy(0, first_rows, behind.last_ids.to(self.token_ids.device))


def _with_drafted(token_ids: torch.Tensor, drafted: DeviceNodes) -> torch.Tensor:
    """Return ids `[T]` with those on the device in place of the numbers that stand for them."""
    ids = drafted.scored(token_ids.device)
    return torch.where(token_ids < 0, ids[(-1 - token_ids).clamp_min(0)], token_ids)


@dataclass(slots=True)
class ForwardOutput:
    """Output of a forward pass."""

    logits: torch.Tensor
    """`[R, V]` in the model's dtype or float32; `[R, V']` for heads."""
    hidden_states: torch.Tensor | None = None
    """`[T, H]` after the final norm, if requested; a target's, like the next ones, until its next pass. For heads the carry
    `[T, F]`: the feature of the next token, if that token is drafted."""
    aux_hidden_states: tuple[torch.Tensor, ...] = ()
    """`[T, H]` per aux layer id: the input of that layer."""
