"""What a head still holds after news, restarts and steps back."""

from __future__ import annotations

import torch

from specdec_drafting.head_context import HeadContext


def held(num_stages: int = 1) -> HeadContext:
    """A context of nine tokens; the carry of row i of stage s is `[s, i]`."""
    context = HeadContext()
    context.hold(0, num_stages)
    context.num_tokens, context.last_logits = 9, torch.ones(3)
    for stage in range(num_stages):
        rows = torch.tensor([[stage, row] for row in range(8 - stage)], dtype=torch.float32)
        context.keep(stage, rows[:3])
        context.keep(stage, rows[3:])
    return context


def test_what_comes_next_forgets_nothing() -> None:
    for start in (9, 12):
        context = held()
        assert not context.forget_from(start)
        assert (context.num_tokens, context.num_rows, context.is_lost) == (9, [8], False)
        assert context.last_logits is not None
        assert [carry.tolist() for carry in context.last_carry if carry is not None] == [[0, 7]]


def test_a_step_back_keeps_the_rows_before_it() -> None:
    context = held()
    assert context.forget_from(4)
    assert (context.num_tokens, context.num_rows, context.last_carry) == (4, [3], [None])
    assert context.last_logits is None
    assert not context.is_lost
    context.forget_from(0)
    assert (context.num_tokens, context.num_rows) == (0, [0])


def test_each_further_stage_has_a_row_less() -> None:
    context = held(3)
    assert context.num_rows == [8, 7, 6]
    context.forget_from(4)
    assert (context.num_rows, context.last_carry) == ([3, 2, 1], [None, None, None])
    context.keep(0, torch.tensor([[0.0, 30.0]]))
    assert context.num_rows == [4, 2, 1]
    context.forget_from(1)
    assert context.num_rows == [0, 0, 0]


def test_a_new_beginning_forgets_everything() -> None:
    context = held(2)
    context.is_lost = True
    context.hold(0, 2)
    assert (context.num_tokens, context.num_rows, context.last_carry) == (0, [0, 0], [None, None])
    assert context.last_logits is None
    assert not context.is_lost
