"""The tensors, at fixed addresses, that a recorded pass reads."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from specdec.interfaces import HostRows, PackedBatch, Segment, UnreadIds
from specdec_kernels.cuda.graphs.pass_shape import PassShape
from specdec_kernels.cuda.paged_pass import Int64s, PagedPass, PassNumbers, add_branches


class StaticPass:
    """A padded pass that is refilled before each replay.

    Padding rows have token 0 at position 0 and write to no slot; padding requests have no rows. The numbers are one tensor, so
    that those of a pass that the host knows are sent to their places by one transfer. Rows take their ids by their place in it,
    and so from the host or from a draft on the device.

    Args:
        shape: its sizes.
        max_context: maximum sequence length, in tokens.
        device: where its tensors are.
        features: `[T, F]` of a head's pass, for their width and dtype; None for a model's pass.
        num_more: how many further numbers are sent with it.
        num_drafted: room for drafted ids that are on the device.
        memory: `[num_numbers(shape, num_more, num_drafted)]` int64, the place of its numbers; None allocates it.
    """

    def __init__(
        self,
        shape: PassShape,
        max_context: int,
        device: torch.device,
        features: torch.Tensor | None,
        num_more: int = 0,
        num_drafted: int = 0,
        memory: torch.Tensor | None = None,
    ) -> None:
        self._shape = shape
        num_rows, num_requests = shape.num_rows, shape.num_requests
        has_mask, width = shape.mask_words > 0, shape.num_branches
        self._at = _layout(shape, num_more, num_drafted)
        self._num_sent = self._at["drafted"].start
        empty = torch.from_numpy(self._empty())
        self._numbers = empty.to(device) if memory is None else memory.copy_(empty)
        part = {name: self._numbers[place] for name, place in self._at.items()}
        self._first_pages, self._sources, self._drafted = (
            part["first_pages"],
            part["sources"],
            part["drafted"],
        )
        self.logits_rows, self.more = part["logits_rows"], part["more"]
        self._pages = torch.arange(shape.table_width, device=device)
        self._branches = part["branches"].view(2, num_requests, width)
        self.rows = PagedPass(
            page_size=shape.page_size,
            slots=part["slots"],
            query_starts=part["query_starts"],
            context_lens=part["context_lens"],
            block_tables=self._numbers.new_zeros((num_requests, shape.table_width)),
            max_context_len=shape.max_context_len,
            tree_mask=part["tree_mask"].view(num_rows, -1) if has_mask else None,
            positions=part["tree_positions"] if has_mask else None,
            outputs={},
        )
        self.features = None if features is None else features.new_zeros((num_rows, *features.shape[1:]))
        longest = min(shape.max_context_len, max_context)
        self.batch = PackedBatch(
            token_ids=torch.zeros_like(part["ids"]),
            positions=part["positions"],
            segments=[Segment(row=0, num_rows=num_rows, first_slot=0, num_cached=longest - num_rows)],
            slots=self.rows.slots,
            logits_rows=None,
        )

    @property
    def num_bytes(self) -> int:
        """Memory of the largest tensors: block tables, features and attention outputs."""
        outputs = (self.rows.outputs or {}).values()
        tensors = [self.rows.block_tables, *outputs, *([] if self.features is None else [self.features])]
        return sum(tensor.nbytes for tensor in tensors)

    def make_inputs(self) -> None:
        """Write token ids and block tables; the first operations of a recording."""
        torch.index_select(self._numbers, 0, self._sources, out=self.batch.token_ids)
        torch.add(self._first_pages[:, None], self._pages, out=self.rows.block_tables)
        if self._shape.num_branches:
            add_branches(self.rows.block_tables, self._branches)

    def has_room(self, drafted: UnreadIds | None) -> bool:
        """Return whether the ids of a draft on the device fit."""
        return drafted is None or drafted.token_ids.numel() <= len(self._drafted)

    def send(
        self,
        host: HostRows,
        numbers: PassNumbers,
        features: torch.Tensor | None,
        *,
        drafted: UnreadIds | None = None,
        more: Int64s | None = None,
    ) -> None:
        """Send a pass into these tensors.

        Args:
            host: see `packed`, like `numbers` and `more`.
            numbers: the same in the form that the kernels read.
            features: `[T, F]` of a head's pass; None leaves them as they are.
            drafted: see `PackedBatch.drafted`.
            more: further numbers.
        """
        if drafted is not None:
            drafted.scored(self._numbers.device, out=self._drafted[: drafted.token_ids.numel()])
        copy_in(self._numbers[: self._num_sent], torch.from_numpy(self.packed(host, numbers, more)))
        if self.features is not None and features is not None:
            count = len(features)
            self.features[:count].copy_(features)
            if count < len(self.features):
                self.features[count:].fill_(0)

    def packed(self, host: HostRows, numbers: PassNumbers, more: Int64s | None = None) -> Int64s:
        """Return the numbers to send of a pass, whose sizes must not exceed the shape's.

        Args:
            host: the pass.
            numbers: the same in the form that the kernels read.
            more: further numbers, for `more`.
        """
        num_rows, together, at = len(host.token_ids), self._empty(), self._at
        together[at["query_starts"]] = num_rows
        parts = {
            "ids": host.token_ids,
            "positions": host.positions,
            "slots": host.slots,
            "query_starts": numbers.query_starts,
            "context_lens": numbers.context_lens,
            "first_pages": numbers.first_pages,
            "logits_rows": host.logits_rows,
            "tree_mask": None if numbers.tree_mask is None else numbers.tree_mask.reshape(-1),
            "tree_positions": numbers.positions,
            "more": more,
        }
        for name, part in parts.items():
            if part is not None:
                start = at[name].start
                together[start : start + len(part)] = part
        if numbers.branches is not None:
            _, size, width = numbers.branches.shape
            self._host_branches(together)[:, :size, :width] = numbers.branches
        is_drafted = np.flatnonzero(host.token_ids < 0)
        together[at["sources"].start + is_drafted] = self._num_sent - 1 - host.token_ids[is_drafted]
        return together[: self._num_sent]

    def padding(self, more: Int64s) -> Int64s:
        """Return the numbers of a pass of padding, with further numbers."""
        numbers = self._empty()
        numbers[self._at["more"]] = more
        return numbers[: self._num_sent]

    def _host_branches(self, numbers: Int64s) -> Int64s:
        """Return the branches in the numbers of a pass, as a view `[2, B, W]`."""
        shape = self._shape
        return numbers[self._at["branches"]].reshape(2, shape.num_requests, shape.num_branches)

    def _empty(self) -> Int64s:
        """Return the numbers of a pass of padding."""
        at = self._at
        numbers = np.zeros(at["drafted"].stop, np.int64)
        numbers[at["slots"]] = numbers[at["tree_mask"]] = -1
        numbers[at["sources"]] = np.arange(self._shape.num_rows)
        self._host_branches(numbers)[0] = self._shape.max_context_len
        return numbers


def num_numbers(shape: PassShape, num_more: int, num_drafted: int = 0) -> int:
    """Return how many numbers a `StaticPass` has."""
    size: int = _layout(shape, num_more, num_drafted)["drafted"].stop
    return size


def _layout(shape: PassShape, num_more: int, num_drafted: int) -> dict[str, slice]:
    """Return the places of a pass's numbers in one tensor, those that the host sends first."""
    num_rows, num_requests = shape.num_rows, shape.num_requests
    return _places(
        {
            "ids": num_rows,
            "positions": num_rows,
            "slots": num_rows,
            "query_starts": num_requests + 1,
            "context_lens": num_requests,
            "first_pages": num_requests,
            "logits_rows": num_rows,
            "tree_mask": num_rows * shape.mask_words,
            "tree_positions": num_rows * (shape.mask_words > 0),
            "branches": 2 * num_requests * shape.num_branches,
            "sources": num_rows,
            "more": num_more,
            "drafted": num_drafted,
        }
    )


def _places(sizes: Mapping[str, int]) -> dict[str, slice]:
    """Return the places of parts of one tensor; even ones, so that they are at addresses that kernels are compiled for."""
    places, start = {}, 0
    for name, size in sizes.items():
        places[name] = slice(start, start + size)
        start += size + size % 2
    return places


def copy_in(place: torch.Tensor, numbers: torch.Tensor) -> None:
    """Copy host numbers to their place on a device, without waiting for it."""
    place.copy_(numbers.pin_memory() if place.device.type == "cuda" else numbers, non_blocking=True)
