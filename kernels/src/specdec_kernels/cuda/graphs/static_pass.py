"""The tensors, at fixed addresses, that a recorded pass reads."""

from __future__ import annotations

import numpy as np
import torch

from specdec.interfaces import HostRows, PackedBatch, Segment
from specdec_kernels.cuda.graphs.pass_shape import PassShape
from specdec_kernels.cuda.paged_pass import Int64s, PagedPass, PassNumbers, add_branches


class StaticPass:
    """A padded pass that is refilled before each replay.

    Padding rows have token 0 at position 0 and write to no slot; padding requests have no rows. The numbers are one tensor, so
    that those of a pass that the host knows are sent to their places by one transfer.

    Args:
        shape: its sizes.
        max_context: maximum sequence length, in tokens.
        device: where its tensors are.
        features: `[T, F]` of a head's pass, for their width and dtype; None for a model's pass.
    """

    def __init__(
        self, shape: PassShape, max_context: int, device: torch.device, features: torch.Tensor | None
    ) -> None:
        self._shape = shape
        num_rows, num_requests = shape.num_rows, shape.num_requests
        has_mask, width = shape.mask_words > 0, shape.num_branches
        sizes = [num_rows] * 3 + [num_requests + 1] + [num_requests] * 2 + [num_rows]
        sizes += [num_rows * shape.mask_words, num_rows * has_mask, 2 * num_requests * width]
        # Even sizes keep the parts on addresses that kernels are compiled for.
        self._starts = np.cumsum([0, *(size + size % 2 for size in sizes)]).tolist()
        self._numbers = torch.from_numpy(self._empty()).to(device)
        (
            token_ids,
            positions,
            slots,
            starts,
            lengths,
            self._first_pages,
            self.logits_rows,
            words,
            places,
            branches,
        ) = (
            self._numbers[start : start + size] for start, size in zip(self._starts[:-1], sizes, strict=True)
        )
        self._pages = torch.arange(shape.table_width, device=device)
        self._branches = branches.view(2, num_requests, width)
        self.rows = PagedPass(
            page_size=shape.page_size,
            slots=slots,
            query_starts=starts,
            context_lens=lengths,
            block_tables=self._numbers.new_zeros((num_requests, shape.table_width)),
            max_context_len=shape.max_context_len,
            tree_mask=words.view(num_rows, -1) if has_mask else None,
            positions=places if has_mask else None,
            outputs={},
        )
        self.features = None if features is None else features.new_zeros((num_rows, *features.shape[1:]))
        longest = min(shape.max_context_len, max_context)
        self.batch = PackedBatch(
            token_ids=token_ids,
            positions=positions,
            segments=[Segment(row=0, num_rows=num_rows, first_slot=0, num_cached=longest - num_rows)],
            slots=slots,
            logits_rows=None,
        )

    @property
    def num_bytes(self) -> int:
        """Memory of the largest tensors: block tables, features and attention outputs."""
        outputs = (self.rows.outputs or {}).values()
        tensors = [self.rows.block_tables, *outputs, *([] if self.features is None else [self.features])]
        return sum(tensor.nbytes for tensor in tensors)

    def make_tables(self) -> None:
        """Write the block tables; the first operations of a recording."""
        torch.add(self._first_pages[:, None], self._pages, out=self.rows.block_tables)
        if self._shape.num_branches:
            add_branches(self.rows.block_tables, self._branches)

    def send(self, host: HostRows, numbers: PassNumbers, features: torch.Tensor | None) -> None:
        """Send a pass into these tensors; its sizes must not exceed the shape's."""
        num_rows, together = len(host.token_ids), self._empty()
        ends = np.full(len(self.rows.query_starts), num_rows)
        ends[: len(numbers.query_starts)] = numbers.query_starts
        rows = np.empty(0, np.int64) if host.logits_rows is None else host.logits_rows
        parts = [
            host.token_ids,
            host.positions,
            host.slots,
            ends,
            numbers.context_lens,
            numbers.first_pages,
            rows,
        ]
        if numbers.tree_mask is not None and numbers.positions is not None:
            parts += [numbers.tree_mask.reshape(-1), numbers.positions]
        for start, part in zip(self._starts, parts, strict=False):
            together[start : start + len(part)] = part
        if numbers.branches is not None:
            _, size, width = numbers.branches.shape
            self._host_branches(together)[:, :size, :width] = numbers.branches
        copy_in(self._numbers, torch.from_numpy(together))
        if self.features is not None:
            assert features is not None
            count = len(features)
            self.features[:count].copy_(features)
            if count < len(self.features):
                self.features[count:].fill_(0)

    def _host_branches(self, numbers: Int64s) -> Int64s:
        """Return the branches in the numbers of a pass, as a view `[2, B, W]`."""
        shape, start = self._shape, self._starts[9]
        count = 2 * shape.num_requests * shape.num_branches
        return numbers[start : start + count].reshape(2, shape.num_requests, shape.num_branches)

    def _empty(self) -> Int64s:
        """Return the numbers of a pass of padding."""
        numbers, starts = np.zeros(self._starts[-1], np.int64), self._starts
        numbers[starts[2] : starts[3]] = -1
        numbers[starts[7] : starts[8]] = -1
        self._host_branches(numbers)[0] = self._shape.max_context_len
        return numbers


def copy_in(place: torch.Tensor, numbers: torch.Tensor) -> None:
    """Copy host numbers to their place on a device, without waiting for it."""
    place.copy_(numbers.pin_memory() if place.device.type == "cuda" else numbers, non_blocking=True)
