"""The shapes of recorded passes; passes are padded to a small number of shapes."""

from __future__ import annotations

from dataclasses import dataclass

from specdec_kernels.cuda.paged_pass import PagedPass, PassNumbers, bound_of

MAX_ROWS = 512
"""Maximum rows of a recorded pass. Longer passes keep the device busy for longer than the host takes to launch them."""
MAX_WHOLE_ROWS = 64
"""The same if only some rows' logits are needed, because a recorded pass computes those of all rows."""
_FEW_REQUESTS = 64
_CHAIN = 4
"""Rows of a request that shapes are recorded for before any request comes."""
_WORD = 64


@dataclass(frozen=True, slots=True)
class PassShape:
    """Sizes of a padded pass: those of its rows, and few others."""

    num_rows: int
    num_requests: int
    page_size: int
    max_context_len: int
    mask_words: int = 0
    """Words per row of the tree mask; 0 without a tree mask."""
    has_tables: bool = False
    """Whether the pages of a request are anywhere, and the tables given."""

    @property
    def table_width(self) -> int:
        """Columns of the block tables."""
        return -(-self.max_context_len // self.page_size) + self.has_tables


def shape_of(num_rows: int, numbers: PassNumbers) -> PassShape:
    """Return the shape that a pass of chains is padded to."""
    return _padded(num_rows, len(numbers.context_lens), numbers.page_size, numbers.bound)


def padded_shape(num_rows: int, rows: PagedPass) -> PassShape:
    """Return the shape that any pass is padded to."""
    words = 0 if rows.visible is None else -(-rows.visible.shape[1] // _WORD)
    has_tables = rows.first_pages is None
    return _padded(
        num_rows, len(rows.context_lens), rows.page_size, rows.max_context_len, words, has_tables=has_tables
    )


def shapes_for(num_requests: int, max_context: int, page_size: int) -> list[PassShape]:
    """Return the shapes of chains that a number of requests needs, those of few rows first."""
    sizes = sorted({_bucket(count) for count in range(1, min(MAX_ROWS, _CHAIN * num_requests) + 1)})
    bounds = [bound_of(1)]
    while bounds[-1] < max_context:
        bounds.append(bound_of(bounds[-1] + 1))
    return [_padded(size, min(size, num_requests), page_size, bound) for size in sizes for bound in bounds]


def _padded(
    num_rows: int, num_requests: int, page_size: int, bound: int, words: int = 0, *, has_tables: bool = False
) -> PassShape:
    num_rows = _bucket(num_rows)
    # A request has at least one row, so that few rows leave no choice.
    least = min(num_rows, _FEW_REQUESTS)
    num_requests = max(least, 1 << (num_requests - 1).bit_length())
    return PassShape(num_rows, num_requests, page_size, bound, words, has_tables)


def _bucket(num_rows: int) -> int:
    """Return 1, 2, 4 or the next multiple of 8, of 16 above 64 and of 32 above 256."""
    if num_rows <= 4:
        return 1 << (num_rows - 1).bit_length()
    step = 8 if num_rows <= 64 else 16 if num_rows <= 256 else 32
    return -(-num_rows // step) * step
