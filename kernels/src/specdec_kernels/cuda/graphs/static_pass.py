"""The tensors, at fixed addresses, that a recorded pass reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext

import numpy as np
import torch

from specdec.interfaces import DeviceNodes, UnreadVerdict, VerdictOffsets
from specdec_kernels.cuda.graphs.pass_shape import PassShape
from specdec_kernels.cuda.graphs.recorder import Recording
from specdec_kernels.cuda.graphs.unread_trees import TreeNumbers, seen_on_paths
from specdec_kernels.cuda.paged_pass import (
    AttentionOutputs,
    Int64s,
    PagedPass,
    PassNumbers,
    add_branches,
    tables_of,
)
from specdec_kernels.triton.move_rows import NUM_GROWING, PassRows, move_rows
from specdec_runtime.interfaces import HostRows, PackedBatch, Segment

_ANY_ID = 2**62


class StaticPass:
    """A padded pass that is refilled before each replay.

    Padding rows have token 0 at position 0 and write to no slot; padding requests have no rows. The numbers are one tensor, so
    that those of a pass that the host knows are sent to their places by one transfer. Rows take their ids by their place in it,
    and so from the host or from a draft on the device, and likewise the parents of trees.

    Args:
        shape: its sizes.
        max_context: maximum sequence length, in tokens.
        device: where its tensors are.
        features: `[T, F]` of a head's pass, for their width and dtype; None for a model's pass.
        num_more: the most further numbers that are sent with it.
        num_drafted: room for drafted nodes that are on the device, and for what is read with them.
        memory: int64, the place of its numbers, which may be others' between passes, of at least
            `num_numbers(shape, num_more, num_drafted)`; None allocates it.
        outputs: what attention writes to, of at least as many rows, which may be others' too; None for its own.
    """

    recording: Recording
    """Once there is one."""

    def __init__(
        self,
        shape: PassShape,
        max_context: int,
        device: torch.device,
        features: torch.Tensor | None,
        num_more: int = 0,
        num_drafted: int = 0,
        memory: torch.Tensor | None = None,
        outputs: AttentionOutputs | None = None,
    ) -> None:
        self._shape = shape
        num_rows, num_requests = shape.num_rows, shape.num_requests
        has_mask, width = shape.mask_words > 0, shape.num_branches
        self._at = _layout(shape, num_more, num_drafted)
        size = self._at["drafted"].stop
        self._numbers = (
            torch.empty(size, dtype=torch.int64, device=device) if memory is None else memory[:size]
        )
        self._padding = self._empty()
        self._own_outputs = AttentionOutputs(num_rows)
        copy_in(
            self._numbers[: self._at["more"].stop],
            torch.from_numpy(self.padding(np.zeros(num_more, np.int64))),
        )
        self._part = part = {name: self._numbers[place] for name, place in self._at.items()}
        self.ids, self.logits_rows, self.more = part["ids"], part["logits_rows"], part["more"]
        self.room = part["drafted"]
        """Where drafted nodes go, and what is read with them."""
        self._branches = part["branches"].view(2, num_requests, width)
        self.rows = PagedPass(
            page_size=shape.page_size,
            slots=part["slots"],
            query_starts=part["query_starts"],
            context_lens=part["context_lens"],
            block_tables=self._numbers.new_zeros((num_requests, shape.table_width)),
            max_context_len=shape.max_context_len,
            tree_mask=torch.zeros_like(part["tree_mask"]).view(num_rows, -1) if has_mask else None,
            positions=torch.zeros_like(part["positions"]) if has_mask else None,
            outputs=self._own_outputs if outputs is None else outputs,
            is_causal=shape.is_causal,
        )
        self.features = None if features is None else features.new_zeros((num_rows, *features.shape[1:]))
        longest = min(shape.max_context_len, max_context)
        self.batch = PackedBatch(
            token_ids=torch.zeros_like(part["ids"]),
            positions=part["positions"] if self.rows.positions is None else self.rows.positions,
            segments=[Segment(row=0, num_rows=num_rows, first_slot=0, num_cached=max(0, longest - num_rows))],
            slots=self.rows.slots,
            logits_rows=self.logits_rows if shape.num_wanted else None,
        )

    @property
    def num_bytes(self) -> int:
        """Memory of the largest tensors of its own: block tables, features and attention outputs."""
        tensors = [self.rows.block_tables, *([] if self.features is None else [self.features])]
        return sum(tensor.nbytes for tensor in tensors) + self._own_outputs.num_bytes

    def make_inputs(self) -> None:
        """Write token ids, block tables, and what rows of trees see of each other; the first operations of a recording."""
        part, shape, ids = self._part, self._shape, self.batch.token_ids
        if len(part["drafted"]):  # where there are verdicts
            own = self.rows.slots, part["sources"], self.rows.query_starts, self.rows.context_lens
            with torch.cuda.device(ids.device) if ids.is_cuda else nullcontext():
                move_rows(
                    PassRows(part["positions"], *own, part["verdict_rows"], part["verdict"]), self._numbers
                )
        torch.index_select(self._numbers, 0, part["sources"], out=ids)
        if len(part["drafted"]):  # which may be any numbers
            torch.minimum(ids.clamp_min_(0), part["last_id"], out=ids)
        pages = part["first_pages"], part["num_shared"], part["shared_pages"]
        tables_of(*pages, shape.table_width, self.rows.block_tables)
        if shape.num_branches:
            add_branches(self.rows.block_tables, self._branches)
        # Of trees on the device the host knows neither who sees whom nor the depths; both follow from the parents.
        if self.rows.tree_mask is not None and self.rows.positions is not None:
            parents = torch.index_select(self._numbers, 0, part["parent_sources"])
            nodes = part["tree_nodes"].view(shape.num_rows, -1)
            *words, depths = seen_on_paths(parents, part["first_nodes"], nodes).unbind(1)
            torch.add(
                part["tree_mask"].view(shape.num_rows, -1), torch.stack(words, 1), out=self.rows.tree_mask
            )
            torch.add(part["positions"], depths, out=self.rows.positions)

    def has_room(self, batch: PackedBatch) -> bool:
        """Return whether the nodes of a draft on the device fit."""
        return batch.drafted is None or batch.drafted.nodes_size <= len(self.room)

    def can_run_behind(self, behind: UnreadVerdict, drafted: DeviceNodes | None, num_more: int) -> bool:
        """Return whether nothing that is sent of a pass, nor its drafted nodes, gets where the verdict that it follows is."""
        if behind.offsets is None:
            return False
        counts, tokens, columns, *_ = behind.offsets
        size, num_nodes = len(behind.token_ids), 0 if drafted is None else drafted.nodes_size
        first = self._at["drafted"].start
        return all(
            self._at["more"].start + num_more <= start
            and (not num_nodes or end <= first or first + num_nodes <= start)
            and end <= len(self._numbers)
            for start, end in ((counts, counts + size), (tokens, tokens + size * columns))
        )

    def send(
        self,
        batch: PackedBatch,
        numbers: PassNumbers,
        features: torch.Tensor | None,
        more: Int64s | None = None,
    ) -> None:
        """Send a pass into these tensors.

        Args:
            batch: the pass, with its numbers on the host.
            numbers: see `packed`, like `more`.
            features: `[T, F]` of a head's pass; None leaves them as they are.
            more: further numbers.
        """
        drafted, behind, trees, first = batch.drafted, batch.behind, None, self._at["drafted"].start
        num_more = 0 if more is None else more.size
        assert batch.host is not None
        offsets, verdict_rows = (None, ()) if behind is None else (behind.offsets, behind.rows)
        # What is sent would overwrite the verdict: its tokens are copied to where no node of this pass goes.
        if behind is not None and not self.can_run_behind(behind, drafted, num_more):
            offsets, verdict_rows = self._copied(behind.last_ids), range(len(behind.rows))
        if drafted is not None:
            drafted.copy_to(self.room)
            if self._shape.mask_words and batch.has_unread_trees:
                trees = TreeNumbers.of(batch, self._shape.mask_words)
        together = self.packed(batch.host, numbers, more, trees, first)
        if drafted is not None:
            together[self._at["last_id"]] = drafted.vocab_size - 1
        if behind is not None and offsets is not None:
            growing = [] if batch.transfer is None or more is None else batch.transfer.growing_at
            self._pack_moves(together, verdict_rows, offsets, growing)
        copy_in(self._numbers[: len(together)], torch.from_numpy(together))
        if self.features is not None and features is not None:
            count = len(features)
            self.features[:count].copy_(features)
            if count < len(self.features):
                self.features[count:].fill_(0)

    def _copied(self, last_ids: torch.Tensor) -> VerdictOffsets:
        """Copy the tokens `[B]` of a verdict without drafts to where drafted nodes go, with its counts, which are 0."""
        size, first = len(last_ids), self._at["drafted"].start
        own = last_ids.clone()  # they may be in this very place
        self.room[:size].zero_()
        self.room[size : 2 * size].copy_(own)
        return VerdictOffsets(first, first + size, 1)

    def _pack_moves(
        self, numbers: Int64s, rows: Sequence[int], offsets: VerdictOffsets, growing: list[int]
    ) -> None:
        """Write what a pass reads of the verdict that it follows; `growing` see `Transfer.growing_at`."""
        first, more = self._at["verdict_rows"].start, self._at["more"].start
        numbers[first : first + len(rows)] = rows
        grow_at = [more + place // numbers.itemsize for place in growing]
        numbers[self._at["verdict"]] = *offsets[:3], *grow_at, *[-1] * (NUM_GROWING - len(grow_at))

    def packed(
        self,
        host: HostRows,
        numbers: PassNumbers,
        more: Int64s | None = None,
        trees: TreeNumbers | None = None,
        first: int = 0,
    ) -> Int64s:
        """Return the numbers to send of a pass, whose sizes must not exceed the shape's.

        Args:
            host: the pass.
            numbers: the same in the form that the kernels read.
            more: further numbers, for `more`.
            trees: those of trees whose parents are on the device.
            first: where the ids on the device begin, if the pass takes any.
        """
        at, num_rows = self._at, len(host.token_ids)
        together = np.concatenate([self._padding, *([] if more is None else [more])])
        together[at["query_starts"]] = num_rows
        parts = {
            "ids": host.token_ids,
            "positions": host.positions,
            "slots": host.slots,
            "query_starts": numbers.query_starts,
            "context_lens": numbers.context_lens,
            "first_pages": numbers.first_pages,
            "num_shared": numbers.num_shared,
            "shared_pages": numbers.shared_pages,
            "logits_rows": host.logits_rows,
        }
        if trees is not None:
            parts |= trees.parts(first)
        for name, part in parts.items():
            if part is not None:
                start = at[name].start
                together[start : start + part.size] = part.reshape(-1)
        if numbers.tree_mask is not None:  # whose rows may be narrower than the shape's
            size, width = numbers.tree_mask.shape
            shape = self._shape
            masks = together[at["tree_mask"]].reshape(shape.num_rows, shape.mask_words)
            masks[:size, :width] = numbers.tree_mask
        # Rows and columns behind those of the pass keep what padding has.
        if numbers.branches is not None:
            _, size, width = numbers.branches.shape
            self._host_branches(together)[:, :size, :width] = numbers.branches
        is_drafted = np.flatnonzero(host.token_ids < 0)
        together[at["sources"].start + is_drafted] = first - 1 - host.token_ids[is_drafted]
        return together

    def padding(self, more: Int64s) -> Int64s:
        """Return the numbers of a pass of padding, with further numbers."""
        return np.concatenate((self._padding, more))

    def _host_branches(self, numbers: Int64s) -> Int64s:
        """Return the branches in the numbers of a pass, as a view `[2, B, W]`."""
        shape = self._shape
        return numbers[self._at["branches"]].reshape(2, shape.num_requests, shape.num_branches)

    def _empty(self) -> Int64s:
        """Return the numbers of a pass of padding, without further ones."""
        at = self._at
        numbers = np.zeros(at["more"].start, np.int64)
        numbers[at["slots"]] = numbers[at["tree_mask"]] = -1
        numbers[at["sources"]] = np.arange(self._shape.num_rows)
        numbers[at["last_id"]] = _ANY_ID
        numbers[at["verdict_rows"]] = -1
        self._host_branches(numbers)[0] = self._shape.max_context_len
        return numbers


def num_numbers(shape: PassShape, num_more: int, num_drafted: int = 0) -> int:
    """Return how many numbers a `StaticPass` has."""
    size: int = _layout(shape, num_more, num_drafted)["drafted"].stop
    return size


def _layout(shape: PassShape, num_more: int, num_drafted: int) -> dict[str, slice]:
    """Return the places of a pass's numbers in one tensor, those that the host sends first."""
    num_rows, num_requests = shape.num_rows, shape.num_requests
    num_tree_rows = num_rows if shape.mask_words else 0
    return _places(
        {
            "ids": num_rows,
            "positions": num_rows,
            "slots": num_rows,
            "query_starts": num_requests + 1,
            "context_lens": num_requests,
            "first_pages": num_requests,
            "num_shared": num_requests,
            "shared_pages": num_requests,
            "logits_rows": shape.num_logits,
            "tree_mask": num_rows * shape.mask_words,
            "tree_nodes": num_tree_rows * (shape.mask_words + 1),
            "first_nodes": num_tree_rows,
            "parent_sources": num_tree_rows,
            "branches": 2 * num_requests * shape.num_branches,
            "sources": num_rows,
            "last_id": 1,
            "verdict_rows": num_requests if num_drafted else 0,
            "verdict": 3 + NUM_GROWING if num_drafted else 0,
            "more": num_more,
            "drafted": num_drafted,
        }
    )


def _places(sizes: Mapping[str, int]) -> dict[str, slice]:
    """Return the places of parts of one tensor; even ones, so that they are at addresses that kernels are compiled for."""
    offsets, start = {}, 0
    for name, size in sizes.items():
        offsets[name] = slice(start, start + size)
        start += size + size % 2
    return offsets


def copy_in(place: torch.Tensor, numbers: torch.Tensor) -> None:
    """Copy host numbers to their place on a device, without waiting for it."""
    place.copy_(numbers.pin_memory() if place.device.type == "cuda" else numbers, non_blocking=True)
