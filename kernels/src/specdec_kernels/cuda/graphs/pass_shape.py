"""The shapes of recorded passes; passes are padded to a small number of shapes."""

from __future__ import annotations

from dataclasses import dataclass

from specdec_kernels.cuda.paged_pass import PagedPass

MAX_ROWS = 512
"""Maximum rows of a recorded pass. Longer passes keep the device busy for longer than the host takes to launch them."""
MAX_WHOLE_ROWS = 64
"""The same if only some rows' logits are needed, because a recorded pass computes those of all rows."""
_WORD = 64


@dataclass(frozen=True, slots=True)
class PassShape:
    """Sizes of a padded pass."""

    num_rows: int
    num_requests: int
    page_size: int
    table_width: int
    max_context_len: int
    mask_words: int
    """Words per row of the tree mask; 0 without a tree mask."""


def padded_shape(num_rows: int, rows: PagedPass) -> PassShape:
    """Return the shape that a pass is padded to."""
    return PassShape(
        num_rows=_bucket(num_rows),
        num_requests=1 << (len(rows.context_lens) - 1).bit_length(),
        page_size=rows.page_size,
        table_width=rows.block_tables.shape[1],
        max_context_len=rows.max_context_len,
        mask_words=0 if rows.visible is None else -(-rows.visible.shape[1] // _WORD),
    )


def _bucket(num_rows: int) -> int:
    """Return 1, 2, 4 or the next multiple of 8, of 16 above 64 and of 32 above 256."""
    if num_rows <= 4:
        return 1 << (num_rows - 1).bit_length()
    step = 8 if num_rows <= 64 else 16 if num_rows <= 256 else 32
    return -(-num_rows // step) * step
