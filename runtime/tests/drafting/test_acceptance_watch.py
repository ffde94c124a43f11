"""A warning, once, where a head drafts worse than the most frequent token would."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from specdec_runtime.drafting.proposer import NUM_DRAFTS, AcceptanceWatch


class Batch:
    """What the watch reads of a `ProposeBatch`: a prompt, a text that goes on, and an answer without a draft."""

    starts = (0, 40, 60)
    counts = (5, 2, 1)
    num_prompt_tokens = (5, 10, 20)
    last_num_drafted = (0, 3, 0)

    def __init__(self, accepted: int, tokens: tuple[int, ...]) -> None:
        self.last_num_accepted = (0, accepted, 0)
        self.new_token_ids = np.array([9, 9, 9, 9, 9, *tokens], np.int32)


def warned(batches: list[Any], caplog: pytest.LogCaptureFixture) -> list[str]:
    caplog.clear()
    watch = AcceptanceWatch("the head")
    with caplog.at_level(logging.WARNING):
        for batch in batches:
            watch.observe(batch)
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("accepted", [1, 3])
def test_the_share_of_accepted_first_tokens_is_compared(accepted, caplog) -> None:
    """A third of the answers' tokens are 4; tokens of prompts do not count."""
    tokens = (4, 5, 6)
    few = [Batch(accepted if n % 10 < 3 else 0, tokens) for n in range(2 * NUM_DRAFTS)]
    (message,) = warned(few, caplog)
    assert message.startswith(f"the head: of {NUM_DRAFTS} drafts the first token was accepted in 30.0 %")
    assert "most frequent token would give 33.3 %" in message
    many = [Batch(accepted if n % 10 < 4 else 0, tokens) for n in range(2 * NUM_DRAFTS)]
    assert warned(many, caplog) == []
    assert warned(few[: NUM_DRAFTS - 1], caplog) == []
