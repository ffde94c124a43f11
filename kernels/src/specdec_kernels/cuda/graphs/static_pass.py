"""The tensors, at fixed addresses, that a recorded pass reads."""

from __future__ import annotations

import torch

from specdec.interfaces import PackedBatch, Segment
from specdec_kernels.cuda.graphs.pass_shape import PassShape
from specdec_kernels.cuda.paged_pass import PagedPass


class StaticPass:
    """A padded pass that is refilled before each replay.

    Padding rows have token 0 at position 0 and write to no slot; padding requests have no rows.

    Args:
        shape: its sizes.
        max_context: maximum sequence length, in tokens.
        device: where its tensors are.
        features: `[T, F]` of a head's pass, for their width and dtype; None for a model's pass.
    """

    def __init__(
        self, shape: PassShape, max_context: int, device: torch.device, features: torch.Tensor | None
    ) -> None:
        def whole(*size: int, value: int = 0) -> torch.Tensor:
            return torch.full(size, value, dtype=torch.int64, device=device)

        num_rows, num_requests = shape.num_rows, shape.num_requests
        has_mask = shape.mask_words > 0
        self.tree_mask = whole(num_rows, shape.mask_words, value=-1) if has_mask else None
        self.rows = PagedPass(
            page_size=shape.page_size,
            slots=whole(num_rows, value=-1),
            query_starts=whole(num_requests + 1),
            context_lens=whole(num_requests),
            block_tables=whole(num_requests, shape.table_width),
            max_context_len=shape.max_context_len,
            positions=whole(num_rows) if has_mask else None,
            outputs={},
        )
        self.features = None if features is None else features.new_zeros((num_rows, *features.shape[1:]))
        longest = min(shape.max_context_len, max_context)
        self.batch = PackedBatch(
            token_ids=whole(num_rows),
            positions=whole(num_rows),
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

    def fill(
        self,
        batch: PackedBatch,
        rows: PagedPass,
        tree_mask: torch.Tensor | None,
        features: torch.Tensor | None,
    ) -> None:
        """Copy a pass into these tensors; its sizes must not exceed the shape's."""
        num_rows = len(batch.token_ids)
        _put(self.batch.token_ids, batch.token_ids, 0)
        _put(self.batch.positions, batch.positions, 0)
        _put(self.rows.slots, rows.slots, -1)
        _put(self.rows.query_starts, rows.query_starts, num_rows)
        _put(self.rows.context_lens, rows.context_lens, 0)
        _put(self.rows.block_tables, rows.block_tables, 0)
        if self.tree_mask is not None:
            assert tree_mask is not None and rows.positions is not None and self.rows.positions is not None
            _put(self.tree_mask, tree_mask, -1)
            _put(self.rows.positions, rows.positions, 0)
        if self.features is not None:
            assert features is not None
            _put(self.features, features, 0)


def _put(place: torch.Tensor, values: torch.Tensor, padding: int) -> None:
    """Copy values to the beginning of a tensor and fill the rest with `padding`."""
    size = values.shape[0]
    place[:size].copy_(values)
    if size < place.shape[0]:
        place[size:].fill_(padding)
