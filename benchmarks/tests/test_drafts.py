"""Draft counters of the engines."""

from __future__ import annotations

from dataclasses import dataclass

from common.drafts import acceptance, draft_counters


@dataclass
class Counter:
    name: str
    value: int


@dataclass
class Vector:
    name: str
    values: list[int]


def test_totals_and_positions() -> None:
    found = draft_counters(
        [
            Counter("vllm:spec_decode_num_drafts", 40),
            Counter("vllm:spec_decode_num_draft_tokens", 80),
            Counter("vllm:spec_decode_num_accepted_tokens", 30),
            Vector("vllm:spec_decode_num_accepted_tokens_per_pos", [20, 10]),
            Counter("vllm:request_success", 3),
        ]
    )
    assert found == {
        "num_drafts": 40,
        "num_draft_tokens": 80,
        "num_accepted_tokens": 30,
        "num_accepted_tokens_per_pos_0": 20,
        "num_accepted_tokens_per_pos_1": 10,
    }
    assert acceptance(found) == "1.750 in 40 drafts; by position 0.500 0.250"


def test_nothing_is_said_where_nothing_was_drafted() -> None:
    assert acceptance({}) is None
    assert acceptance({"num_drafts": 0}) is None
