"""The correctness gate: when a ratio is shown."""

from __future__ import annotations

from collections.abc import Sequence

from common.gate import compare

PROMPTS = [[10, 11], [20]]


def test_equal_tokens_pass() -> None:
    gate = compare(PROMPTS, [[1, 2], [3, 4]], [[1, 2], [3, 4]], lambda _: 1.0)
    assert gate.is_passed
    assert gate.num_identical == 2


def test_one_wrong_token_fails_and_is_named() -> None:
    gate = compare(PROMPTS, [[1, 2, 5], [3, 4, 6]], [[1, 2, 5], [3, 9, 7]], lambda _: 0.5)
    assert not gate.is_passed
    assert [(d.prompt, d.position, d.ours, d.peer, d.gap) for d in gate.divergences] == [(1, 1, 4, 9, 0.5)]


def test_a_tie_passes_and_is_looked_for_at_the_common_prefix() -> None:
    asked: list[Sequence[int]] = []

    def gap_of(token_ids: Sequence[int]) -> float:
        asked.append(token_ids)
        return 1e-7

    gate = compare(PROMPTS, [[1, 2], [3, 4]], [[1, 2], [3, 9]], gap_of)
    assert gate.is_passed
    assert gate.num_identical == 1
    assert asked == [[20, 3]]


def test_below_float32_differences_are_counted_but_do_not_fail() -> None:
    gate = compare(PROMPTS, [[1], [3]], [[2], [3]], None)
    assert gate.is_passed
    assert gate.num_identical == 1
