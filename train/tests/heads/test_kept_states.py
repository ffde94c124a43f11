"""States that are kept are those of a pass over the target."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from specdec_train.answers.record import Answered
from specdec_train.answers.state_recorder import RecordedText
from specdec_train.heads.data import answer_data, split_batch
from specdec_train.heads.kept_states import KeptStates
from specdec_train.heads.recipe import HEADS
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


def recorded(reader: StateReader, *texts: list[int], factor: float = 1.0) -> list[RecordedText]:
    """Texts with the states of all their positions but the last."""
    found = []
    for text in texts:
        states = reader.read(torch.tensor([text]))
        parts = tuple(factor * part[0, :-1] for part in (states.hidden, *states.aux))
        found.append(RecordedText(tuple(text), parts))
    return found


def test_recorded_states_need_one_pass_that_checks_them(reader: StateReader, caplog) -> None:
    kept = KeptStates(reader)
    kept.know(recorded(reader, A, B, C))
    for batch in (rows(A, C), rows(B), rows(B, A), rows(C)):
        found = kept.read(batch)
        read = reader.read(batch)
        for b, row in enumerate(batch.tolist()):
            length = len([token for token in row if token != FILLER]) - 1
            torch.testing.assert_close(
                found.hidden[b, :length], read.hidden[b, :length], rtol=1e-5, atol=1e-6
            )
            torch.testing.assert_close(
                found.aux[1][b, :length], read.aux[1][b, :length], rtol=1e-5, atol=1e-6
            )
    assert kept.num_passes == 1
    assert caplog.text == ""


def test_recorded_states_of_another_model_are_dropped(reader: StateReader, caplog) -> None:
    kept = KeptStates(reader)
    kept.know(recorded(reader, A, B, C, factor=-1.0))
    kept.read(rows(A))
    assert "recorded states are not those of the target" in caplog.text
    assert_equal_before_filler(kept.read(rows(B, A)), reader.read(rows(B, A)), [len(B), len(A)])
    assert kept.num_passes == 2


def test_rows_of_answers_are_found_whatever_is_cut_from_them(reader: StateReader) -> None:
    texts = [[5, 6, 7, 8, 9], [11, 12, 13, 14, FILLER], list(range(4, 30)), [9, 8, 7, 6, 5, 4]]
    answered = [Answered(text, 1) for text in texts]
    recipe = replace(HEADS["eagle3"], seq_len=12, batch_size=2, micro_batch=2, num_steps=2)
    data = answer_data(recipe, answered, answered[:2], FILLER, recorded(reader, *texts))
    kept = KeptStates(reader)
    kept.know(data.recorded)
    for step in range(6):
        tokens, _ = split_batch(data.batch_of(step))
        kept.read(tokens[:, :-1])
    for batch in data.heldout:
        kept.read(split_batch(batch)[0][:, :-1])
    assert kept.num_passes == 1
