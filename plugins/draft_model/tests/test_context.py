"""What stays in the draft's cache after acceptance, rejection and re-delivery."""

import numpy as np
import pytest
import torch

from specdec_drafting import DraftVocabulary, equal_vocabulary
from specdec_plugin_draft_model.context import DraftContext

SAME = equal_vocabulary(100, 100, torch.device("cpu"))
# Id 3 of the target is two of the draft's, all others are one.
SPLIT = DraftVocabulary(
    np.arange(8), np.arange(8), [[i] if i != 3 else [8, 9] for i in range(8)], 8, torch.device("cpu")
)


def text(*ids):
    return np.array(ids, np.int32)


@pytest.mark.parametrize(
    ("committed", "kept"),
    [
        ((1, 2, 7, 8, 9), 4),  # both guesses were accepted; 9 is new
        ((1, 2, 7, 5), 3),  # the first was accepted
        ((1, 2, 6), 2),  # none
        ((1, 2, 7), 3),  # the text ends inside the guesses
    ],
)
def test_rows_of_right_guesses_stay(committed, kept):
    context = DraftContext(num_taken=2, num_rows=2, guesses=[7, 8])
    context.settle(text(*committed), 2, SAME)
    assert (context.num_taken, context.num_rows, context.guesses) == (kept, kept, [])


def test_an_earlier_start_forgets_from_there_even_what_is_equal():
    context = DraftContext(num_taken=4, num_rows=4, guesses=[5])
    context.settle(text(1, 2, 3, 4, 5), 1, SAME)
    assert (context.num_taken, context.num_rows, context.guesses) == (1, 1, [])


def test_rows_are_counted_in_the_drafts_ids():
    context = DraftContext(num_taken=3, num_rows=4, guesses=[2])
    context.settle(text(3, 1, 2, 2, 5), 3, SPLIT)
    assert (context.num_taken, context.num_rows) == (4, 5)
    context.settle(text(3, 1, 2, 2, 5), 1, SPLIT)
    assert (context.num_taken, context.num_rows) == (1, 2)
    assert SPLIT.to_draft(text(3, 1, 3)).tolist() == [8, 9, 1, 8, 9]
    assert SPLIT.num_draft_ids(text(3, 1, 3)) == 5
    assert SPLIT.to_draft(text()).tolist() == []
