"""What stays of a request's rows after acceptance and rejection."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from specdec.interfaces import TokenIds
from specdec_runtime.drafting.request_rows import RequestState


def text(*ids: int) -> TokenIds:
    return np.array(ids, np.int32)


@pytest.mark.parametrize(
    ("committed", "kept"),
    [
        ((1, 2, 7, 8, 9), 4),  # both drafted tokens were accepted; 9 is new
        ((1, 2, 7, 5), 3),  # the first was accepted
        ((1, 2, 6), 2),  # none
        ((1, 2, 7), 3),  # the text ends inside the drafted tokens
    ],
)
def test_rows_of_accepted_tokens_stay(committed: tuple[int, ...], kept: int) -> None:
    state = RequestState(num_tokens=2, num_ids=3, drafted=[7, 8])
    state.keep_accepted(text(*committed), 0)
    assert (state.num_tokens, state.num_ids, state.drafted) == (kept, kept + 1, [])


@pytest.mark.parametrize(("num_accepted", "kept"), [(0, 2), (1, 3), (2, 4), (3, 4)])
def test_of_tokens_that_were_not_read_as_many_stay_as_were_accepted(num_accepted: int, kept: int) -> None:
    state = RequestState(num_tokens=2, num_ids=3, drafted=[None, None])
    state.keep_accepted(text(1, 2, 7, 8, 9), num_accepted)
    assert (state.num_tokens, state.num_ids, state.drafted) == (kept, kept + 1, [])


def test_logits_are_those_of_the_last_token() -> None:
    state = RequestState(num_tokens=2, num_ids=2, drafted=[7], logits=torch.zeros(1, 4))
    state.keep_accepted(text(1, 2, 6), 0)
    assert state.logits is not None
    state.drafted = [7]
    state.keep_accepted(text(1, 2, 7), 1)
    assert state.logits is None
