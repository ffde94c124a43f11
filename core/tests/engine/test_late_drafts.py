"""Alignment of late drafts, against a loop over rows."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from specdec.engine.late_drafts import align_late_drafts

POISON = 77
"""Stands behind the ends of rows, where nothing may be read; as a token it would be copied or compared."""


def aligned(draft: list[int], emitted: list[int], most: int, *, allows_correction: bool) -> list[int]:
    """Return what is left of one late draft."""
    for place, token in enumerate(emitted):
        if place == len(draft):
            return []
        if draft[place] != token and not (allows_correction and place == len(emitted) - 1):
            return []
    return draft[len(emitted) :][: max(most, 0)]


def padded(rows: list[list[int]], width: int, padding: int = -1) -> torch.Tensor:
    tokens = torch.full((len(rows), width), padding)
    for row, ids in enumerate(rows):
        tokens[row, : len(ids)] = torch.tensor(ids, dtype=torch.int64)
    return tokens


def check(
    drafts: list[list[int]],
    emitted: list[list[int]],
    most: list[int],
    num_columns: int,
    num_emitted_columns: int,
    width: int | None = None,
    padding: int = -1,
    *,
    allows_correction: bool = False,
) -> None:
    """Compare all rows of a batch with the loop: values, padding, lengths, shapes, dtypes; inputs stay as they are."""
    inputs = (
        padded(drafts, num_columns, padding),
        torch.tensor([len(draft) for draft in drafts], dtype=torch.int64),
        padded(emitted, num_emitted_columns, padding),
        torch.tensor([len(tokens) for tokens in emitted], dtype=torch.int64),
        torch.tensor(most, dtype=torch.int64),
    )
    before = [tensor.clone() for tensor in inputs]
    token_ids, num_nodes = align_late_drafts(*inputs, width=width, allows_correction=allows_correction)
    num_kept = num_columns if width is None else width
    rows = zip(drafts, emitted, most, strict=True)
    expected = [aligned(*row, allows_correction=allows_correction)[:num_kept] for row in rows]
    torch.testing.assert_close(token_ids, padded(expected, num_kept), rtol=0, atol=0)
    assert num_nodes.tolist() == [len(row) for row in expected]
    assert num_nodes.dtype is torch.int64
    assert all(map(torch.equal, inputs, before))


def sequences(longest: int) -> list[list[int]]:
    """Return all rows of up to `longest` of two tokens."""
    return [list(row) for length in range(longest + 1) for row in product((0, 1), repeat=length)]


@pytest.mark.parametrize("width", [None, 0, 1, 2, 6])
@pytest.mark.parametrize("padding", [-1, POISON])
@pytest.mark.parametrize("allows_correction", [False, True])
def test_all_rows_of_two_tokens(width: int | None, padding: int, allows_correction: bool) -> None:
    """All drafts of up to four tokens, all emitted rows of up to three and five maxima: 2,325 rows, in one batch."""
    cases = list(product(sequences(4), sequences(3), (-1, 0, 1, 2, 4)))
    drafts, emitted, most = (list(column) for column in zip(*cases, strict=True))
    check(drafts, emitted, most, 4, 3, width, padding, allows_correction=allows_correction)


@pytest.mark.parametrize(("num_columns", "num_emitted_columns"), [(5, 3), (4, 7), (9, 3), (1, 1), (3, 0)])
def test_odd_sizes(num_columns: int, num_emitted_columns: int) -> None:
    """Columns that nothing fills, more columns of emitted tokens than of drafts, and single columns."""
    rows = list(product(sequences(min(num_columns, 3)), sequences(min(num_emitted_columns, 3)), (1, 9)))
    drafts, emitted, most = (list(column) for column in zip(*rows, strict=True))
    check(drafts, emitted, most, num_columns, num_emitted_columns, padding=POISON)


def test_a_row_at_a_time() -> None:
    check([[5, 6, 7, 8]], [[5, 6]], [1], 4, 2)
    check([[5, 6, 7, 8]], [[5, 9]], [3], 4, 2)


def test_a_corrected_token_may_be_another_one() -> None:
    """The last emitted token may differ, and only that one."""
    arguments = (
        torch.tensor([[5, 6, 7, 8]] * 2),
        torch.tensor([4, 4]),
        torch.tensor([[5, 9], [9, 6]]),
        torch.tensor([2, 2]),
        torch.tensor([5, 5]),
    )
    assert align_late_drafts(*arguments)[1].tolist() == [0, 0]
    token_ids, num_nodes = align_late_drafts(*arguments, allows_correction=True)
    assert token_ids.tolist() == [[7, 8, -1, -1], [-1] * 4]
    assert num_nodes.tolist() == [2, 0]


def test_emitted_tokens_beyond_the_draft_leave_nothing() -> None:
    check([[5, 6], [5, 6], [5, 6]], [[5, 6], [5, 6, 7], [5, 6, 7, 8]], [3, 3, 3], 2, 4)


def test_padding_that_equals_padding_is_no_agreement() -> None:
    """A draft of one token and three emitted ones, whose columns hold the same numbers."""
    token_ids, emitted = torch.tensor([[4, -1, -1, -1]]), torch.tensor([[4, -1, -1, -1]])
    found, num_nodes = align_late_drafts(
        token_ids, torch.tensor([1]), emitted, torch.tensor([3]), torch.tensor([4])
    )
    assert found.tolist() == [[-1] * 4]
    assert num_nodes.tolist() == [0]


def test_a_row_that_emitted_nothing_keeps_its_draft() -> None:
    check([[5, 6, 7], [], [8]], [[], [], []], [2, 2, 2], 3, 4, padding=POISON)


@pytest.mark.parametrize(("batch", "columns"), [(0, 4), (0, 0), (3, 0)])
def test_nothing_to_align(batch: int, columns: int) -> None:
    check([[]] * batch, [[7]] * batch, [5] * batch, columns, 1)
    check([[]] * batch, [[7]] * batch, [5] * batch, columns, 1, width=5)


def test_integers_of_any_width() -> None:
    """Token ids in int32 stay int32; lengths are int64 whatever comes in."""
    arguments = [torch.tensor(values, dtype=torch.int32) for values in ([[5, 6, 7]], [3], [[5]], [1], [1])]
    token_ids, num_nodes = align_late_drafts(*arguments)
    assert token_ids.dtype is torch.int32
    assert (token_ids.tolist(), num_nodes.tolist()) == ([[6, -1, -1]], [1])
    assert num_nodes.dtype is torch.int64


def test_no_value_is_read_on_the_host() -> None:
    """Tensors without values have to be enough: shapes follow from shapes, so nothing waits for a device."""
    sizes = ((3, 11), (3,), (3, 6), (3,), (3,))
    arguments = [torch.empty(size, dtype=torch.int64, device="meta") for size in sizes]
    token_ids, num_nodes = align_late_drafts(*arguments, width=5)
    assert (token_ids.shape, num_nodes.shape) == ((3, 5), (3,))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"token_ids": torch.zeros(2, dtype=torch.int64)}, r"got \[2\] and \[2, 3\]"),
        ({"emitted": torch.zeros(1, 3, dtype=torch.int64)}, r"got \[2, 4\] and \[1, 3\]"),
        ({"num_nodes": torch.zeros(1, dtype=torch.int64)}, r"num_nodes has one number .* got \[1\]"),
        ({"num_emitted": torch.zeros(2, 1, dtype=torch.int64)}, r"num_emitted .* got \[2, 1\]"),
        ({"most": torch.tensor(5)}, r"most .* got \[\]"),
        ({"width": -1}, "width .* got -1"),
    ],
)
def test_shapes_that_do_not_belong_together(changed: dict, message: str) -> None:
    arguments = {
        "token_ids": torch.zeros(2, 4, dtype=torch.int64),
        "num_nodes": torch.zeros(2, dtype=torch.int64),
        "emitted": torch.zeros(2, 3, dtype=torch.int64),
        "num_emitted": torch.zeros(2, dtype=torch.int64),
        "most": torch.zeros(2, dtype=torch.int64),
    }
    with pytest.raises(ValueError, match=message):
        align_late_drafts(**(arguments | changed))
