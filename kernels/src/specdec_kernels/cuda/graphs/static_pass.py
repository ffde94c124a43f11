"""The tensors, at fixed addresses, that a recorded pass reads."""

from __future__ import annotations

import numpy as np
import torch

from specdec.interfaces import HostRows, PackedBatch, Segment
from specdec_kernels.cuda.graphs.pass_shape import PassShape
from specdec_kernels.cuda.paged_pass import PagedPass, PassNumbers


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
        num_rows, num_requests = shape.num_rows, shape.num_requests
        # Even sizes keep the parts on addresses that kernels are compiled for.
        sizes = [num_rows] * 3 + [num_requests + 1] + [num_requests] * 2 + [num_rows]
        self._starts = np.cumsum([0, *(size + size % 2 for size in sizes)]).tolist()
        self._numbers = torch.from_numpy(self._empty()).to(device)
        token_ids, positions, slots, query_starts, context_lens, self._first_pages, self.logits_rows = (
            self._numbers[start : start + size] for start, size in zip(self._starts[:-1], sizes, strict=True)
        )
        has_mask = shape.mask_words > 0
        self.tree_mask = self._numbers.new_full((num_rows, shape.mask_words), -1) if has_mask else None
        self._pages = None if shape.has_tables else torch.arange(shape.table_width, device=device)
        self.rows = PagedPass(
            page_size=shape.page_size,
            slots=slots,
            query_starts=query_starts,
            context_lens=context_lens,
            block_tables=self._numbers.new_zeros((num_requests, shape.table_width)),
            max_context_len=shape.max_context_len,
            positions=self._numbers.new_zeros(num_rows) if has_mask else None,
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
        """Write the block tables of requests whose pages follow each other; the first operation of a recording."""
        if self._pages is not None:
            torch.add(self._first_pages[:, None], self._pages, out=self.rows.block_tables)

    def send(self, host: HostRows, numbers: PassNumbers, features: torch.Tensor | None) -> None:
        """Send a pass of chains into these tensors; its sizes must not exceed the shape's."""
        num_rows = len(host.token_ids)
        ends = np.full(len(self.rows.query_starts), num_rows)
        ends[: len(numbers.query_starts)] = numbers.query_starts
        together = self._empty()
        parts = [host.token_ids, host.positions, host.slots, ends, numbers.context_lens, numbers.first_pages]
        parts += [] if host.logits_rows is None else [host.logits_rows]
        for start, part in zip(self._starts, parts, strict=False):
            together[start : start + len(part)] = part
        copy_in(self._numbers, torch.from_numpy(together))
        self._set_features(features)

    def fill(
        self,
        batch: PackedBatch,
        rows: PagedPass,
        tree_mask: torch.Tensor | None,
        features: torch.Tensor | None,
    ) -> None:
        """Copy a pass from other tensors on the device; its sizes must not exceed the shape's."""
        _put(self.batch.token_ids, batch.token_ids, 0)
        _put(self.batch.positions, batch.positions, 0)
        _put(self.rows.slots, rows.slots, -1)
        _put(self.rows.query_starts, rows.query_starts, len(batch.token_ids))
        _put(self.rows.context_lens, rows.context_lens, 0)
        if rows.first_pages is None:
            _put(self.rows.block_tables, rows.block_tables, 0)
        else:
            _put(self._first_pages, rows.first_pages, 0)
        if self.tree_mask is not None:
            assert tree_mask is not None and rows.positions is not None and self.rows.positions is not None
            _put(self.tree_mask, tree_mask, -1)
            _put(self.rows.positions, rows.positions, 0)
        self._set_features(features)

    def _set_features(self, features: torch.Tensor | None) -> None:
        if self.features is not None:
            assert features is not None
            _put(self.features, features, 0)

    def _empty(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Return the numbers of a pass of padding."""
        numbers = np.zeros(self._starts[-1], np.int64)
        numbers[self._starts[2] : self._starts[3]] = -1
        return numbers


def copy_in(place: torch.Tensor, numbers: torch.Tensor) -> None:
    """Copy host numbers to their place on a device, without waiting for it."""
    place.copy_(numbers.pin_memory() if place.device.type == "cuda" else numbers, non_blocking=True)


def _put(place: torch.Tensor, values: torch.Tensor, padding: int) -> None:
    """Copy values to the beginning of a tensor and fill the rest with `padding`."""
    size = values.shape[0]
    place[:size].copy_(values)
    if size < place.shape[0]:
        place[size:].fill_(padding)
