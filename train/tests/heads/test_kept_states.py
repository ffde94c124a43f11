"""States that are kept are those of a pass over the target."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from specdec_train.heads.kept_states import KeptStates
from specdec_train.heads.states import StateReader, TargetStates

FILLER = 1


@pytest.fixture
def reader() -> StateReader:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=3, num_attention_heads=2
    )
    return StateReader(LlamaForCausalLM(config), (0, 2))


def rows(*texts: list[int]) -> Tensor:
    width = max(map(len, texts)) + 2
    return torch.tensor([text + [FILLER] * (width - len(text)) for text in texts])


A, B, C = [5, 6, 7, 8, 9], [11, 12, 13], [5, 6, 7, 8, 9, 10, 11, 12]


def assert_equal_before_filler(kept: TargetStates, read: TargetStates, lengths: list[int]) -> None:
    for ours, theirs in zip((kept.hidden, *kept.aux), (read.hidden, *read.aux), strict=True):
        assert ours.shape == theirs.shape
        for b, length in enumerate(lengths):
            torch.testing.assert_close(ours[b, :length], theirs[b, :length], rtol=1e-5, atol=1e-6)


def test_rows_are_known_again_in_other_batches(reader: StateReader) -> None:
    kept = KeptStates(reader)
    kept.read(rows(A, C))
    kept.read(rows(B))
    assert kept.num_passes == 2

    again = kept.read(rows(B, A))
    assert kept.num_passes == 2
    assert_equal_before_filler(again, reader.read(rows(B, A)), [len(B), len(A)])


def test_logits_are_of_the_places_and_ids_asked_for(reader: StateReader) -> None:
    kept = KeptStates(reader)
    tokens, places, ids = rows(A, C), torch.tensor([0, 3, 12]), torch.tensor([2, 30])
    kept.read(tokens)
    found = kept.read(tokens, places, ids)
    assert kept.num_passes == 1
    torch.testing.assert_close(found.logits, reader.read(tokens, places, ids).logits, rtol=1e-5, atol=1e-6)


def test_what_does_not_fit_is_read_anew(reader: StateReader) -> None:
    of_a = len(A) * 3 * 16 * 4
    kept = KeptStates(reader, of_a)
    kept.read(rows(A, C))
    assert kept.num_bytes == of_a
    kept.read(rows(A))
    assert kept.num_passes == 1
    kept.read(rows(C))
    assert kept.num_passes == 2


def test_a_target_that_changes_its_states_before_the_projection_is_always_run(
    reader: StateReader, caplog: pytest.LogCaptureFixture
) -> None:
    reader.target.base_model.register_forward_hook(
        lambda module, args, output: type(output)(last_hidden_state=3 * output.last_hidden_state)
    )
    kept = KeptStates(reader)
    with caplog.at_level(logging.WARNING, "specdec"):
        kept.read(rows(A))
        kept.read(rows(A))
    assert kept.num_passes == 2
    assert "LlamaForCausalLM" in caplog.text
