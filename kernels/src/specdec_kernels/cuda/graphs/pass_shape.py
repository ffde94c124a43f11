"""The shapes of recorded passes; passes are padded to a small number of shapes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from itertools import product

from specdec_kernels.cuda.paged_pass import PassNumbers, bound_of
from specdec_runtime.interfaces import PassLimits

MAX_ROWS = 512
"""Maximum rows of a recorded pass of which all rows have logits."""
MAX_TREE_ROWS = 1024
"""The same where passes verify trees, of which every request has many rows."""
MAX_WHOLE_ROWS = 64
"""Up to so many rows a recorded pass computes the logits of all, also if only some are wanted."""
MAX_PROMPT_ROWS = 2048
"""Maximum rows of a recorded pass with prompts. Longer ones keep the device busy for longer than the host launches them."""
FEW_REQUESTS = 64
"""Requests that a pass is padded to if it has at least as many rows, but for passes with prompts."""
_CHAIN = 4
"""Rows of a request that shapes are recorded for before any request comes."""
_LEAST_BRANCHES = 8
_FEW_PROMPTS = 4
"""Requests that a pass with prompts is padded to if it has no more."""


@dataclass(frozen=True, slots=True)
class PassShape:
    """Sizes of a padded pass: those of its rows, and few others."""

    num_rows: int
    num_requests: int
    page_size: int
    max_context_len: int
    mask_words: int = 0
    """Words per row of the tree mask; 0 without a tree mask."""
    num_branches: int = 0
    """Most places of a row's table that are given apart; 0 if the pages of every request follow each other."""
    is_causal: bool = True
    """Whether a row sees no later one of its request."""
    num_wanted: int = 0
    """Rows that have logits, in passes with prompts; 0 if all have them."""

    @property
    def num_logits(self) -> int:
        """Rows of the logits."""
        return self.num_wanted or self.num_rows

    @property
    def table_width(self) -> int:
        """Columns of the block tables."""
        return -(-self.max_context_len // self.page_size) + (self.num_branches > 0)


def shape_of(num_rows: int, numbers: PassNumbers, least_words: int = 0) -> PassShape:
    """Return the shape that a pass is padded to, with at least so many words of a mask."""
    words = max(least_words, 0 if numbers.tree_mask is None else numbers.tree_mask.shape[1])
    width = 0 if numbers.branches is None else max(_LEAST_BRANCHES, _power(numbers.branches.shape[2]))
    size = num_rows, len(numbers.context_lens), numbers.page_size, numbers.bound
    if not numbers.is_causal:
        return replace(padded(*size), is_causal=False)
    return padded(*size, words, width)


def prompt_shape(
    num_rows: int, size: tuple[int, int], numbers: PassNumbers, max_context: int, words: int
) -> PassShape:
    """Return the shape that a pass with prompts is padded to, of which only some rows have logits.

    Args:
        num_rows: its rows.
        size: requests and rows with logits that it is padded to; see `prompt_shapes_for`.
        numbers: what the kernels read of it.
        max_context: maximum sequence length, in tokens.
        words: the least words of its mask.
    """
    num_requests, num_wanted = size
    return replace(
        shape_of(num_rows, numbers, words),
        num_rows=_prompt_bucket(num_rows),
        num_requests=num_requests,
        max_context_len=max(numbers.bound, prompt_bounds(max_context)[0]),
        num_wanted=num_wanted,
    )


def prompt_bounds(max_context: int) -> list[int]:
    """Return the bounds on contexts of passes with prompts: all but the least, unless that is the only one."""
    bounds = bounds_for(max_context)
    return bounds[1:] or bounds


def larger_shapes(num_rows: int, numbers: PassNumbers, most: int) -> list[PassShape]:
    """Return the shapes that a pass of chains fits into, the one that it is padded to first; of up to `most` rows."""
    sizes = sorted({_bucket(count) for count in range(num_rows, most + 1)})
    return [shape_of(size, numbers) for size in sizes]


def shapes_for(
    num_requests: int, max_context: int, page_size: int, rows_each: int = _CHAIN
) -> list[PassShape]:
    """Return the shapes that a number of requests needs, with up to `rows_each` rows of each, and short prompts; those of few
    rows first."""
    limit = MAX_ROWS if rows_each == 1 else MAX_TREE_ROWS
    most = min(limit, max(MAX_WHOLE_ROWS, max(_CHAIN, rows_each) * num_requests))
    sizes = sorted({_bucket(count) for count in range(1, most + 1)})
    return [
        padded(size, min(size, num_requests), page_size, bound)
        for size in sizes
        for bound in bounds_for(max_context)
    ]


def prompt_shapes_for(limits: PassLimits, max_context: int, page_size: int) -> list[PassShape]:
    """Return the shapes of passes with prompts; those of few rows first.

    There are few sizes of each. How attention is cut into tiles follows from the rows per request, so that a few long prompts
    are not padded to the requests of a full batch; nor are few logits padded to as many as a step may need.
    """
    most = min(limits.num_rows, MAX_PROMPT_ROWS)
    rows = sorted({_prompt_bucket(count) for count in range(MAX_WHOLE_ROWS + 1, most + 1)})
    many = max(_FEW_PROMPTS, _power(limits.num_requests))
    wanted = {_wanted(many), _wanted(min(limits.num_logits, MAX_ROWS))}
    sizes = sorted({(_FEW_PROMPTS, _wanted(1)), *product((many,), wanted)})
    return [
        PassShape(num_rows, count, page_size, bound, num_wanted=wanted)
        for num_rows in rows
        for count, wanted in sizes
        for bound in prompt_bounds(max_context)
    ]


def sizes_for(num_requests: int) -> list[int]:
    """Return the numbers of requests, powers of two, that draft loops are recorded for."""
    return [1 << place for place in range(_power(num_requests).bit_length())]


def loops_for(num_requests: int, max_context: int) -> list[tuple[int, int]]:
    """Return the numbers of requests and the bounds on contexts that draft loops are recorded for."""
    return [(size, bound) for size in sizes_for(num_requests) for bound in bounds_for(max_context)]


def bounds_for(max_context: int) -> list[int]:
    """Return the bounds on contexts up to a length."""
    bounds = [bound_of(1)]
    while bounds[-1] < max_context:
        bounds.append(bound_of(bounds[-1] + 1))
    return bounds


@cache
def padded(
    num_rows: int, num_requests: int, page_size: int, bound: int, words: int = 0, num_branches: int = 0
) -> PassShape:
    """Return the shape that a pass of these sizes is padded to."""
    num_rows = _bucket(num_rows)
    # A request has at least one row, so that few rows leave no choice.
    least = _power(min(num_rows, FEW_REQUESTS))
    return PassShape(num_rows, max(least, _power(num_requests)), page_size, bound, words, num_branches)


def _power(size: int) -> int:
    """Return the next power of two."""
    return 1 << (size - 1).bit_length()


def _wanted(count: int) -> int:
    """Return 64, 256 or the next power of two."""
    return 64 if count <= 64 else 256 if count <= 256 else _power(count)


def _prompt_bucket(num_rows: int) -> int:
    """Return the next multiple of 32, of 64 above 256, of 128 above 512 and of 256 above 1024."""
    step = 32 if num_rows <= 256 else 64 if num_rows <= 512 else 128 if num_rows <= 1024 else 256
    return -(-num_rows // step) * step


def _bucket(num_rows: int) -> int:
    """Return 1, 2, 4 or the next multiple of 8, of 16 above 64, of 32 above 256 and of 64 above 512."""
    if num_rows <= 4:
        return _power(num_rows)
    step = 8 if num_rows <= 64 else 16 if num_rows <= 256 else 32 if num_rows <= 512 else 64
    return -(-num_rows // step) * step
