"""States that are recorded while the target answers are those of a pass over the text."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

import specdec_zoo
from specdec import SamplingParams
from specdec.engine_options import EngineOptions
from specdec.interfaces import FinishReason, ProposeBatch, TargetInfo
from specdec_runtime.loading.target import LoadedTarget, load_target
from specdec_train.answers.engine import AnswerEngine, Asked
from specdec_train.answers.state_recorder import RecordedText, StateRecorder, StateRecorderConfig
from specdec_train.heads.states import StateReader

LAYERS = (2, 7, 12)
PROMPTS = (list(range(300, 360)), [5, 6, 7], list(range(900, 1000)), [40])


@pytest.fixture(scope="module")
def loaded() -> LoadedTarget:
    return load_target(EngineOptions(model=str(specdec_zoo.path("target")), dtype="float32"))


def answer(engine: AnswerEngine, *, speculative: Any = None) -> dict[tuple[int, ...], Any]:
    """Answer all prompts, each up to another length; returns the texts with their outputs."""
    waiting: Iterator[Asked] = (
        Asked(
            prompt,
            SamplingParams(
                temperature=0.8, seed=n, max_tokens=5 + 4 * n, ignore_eos=True, speculative=speculative
            ),
            None,
        )
        for n, prompt in enumerate(PROMPTS)
    )
    found = {}
    for asked, output in engine.run(
        lambda: next(waiting, None), time.monotonic() + 300.0, lambda: False, lambda: None
    ):
        found[(*asked.prompt, *output.outputs[0].token_ids)] = output
    return found


def test_recorded_states_are_those_of_a_pass(loaded: LoadedTarget) -> None:
    engine = AnswerEngine(loaded, 200, {"aux_layer_ids": list(LAYERS), "most_bytes": 2**28})
    texts = answer(engine)
    recorder = engine.recorder
    assert recorder is not None
    assert {text.ids for text in recorder.texts} == set(texts)
    assert recorder.num_left_out == 0
    engine.close()
    loaded.model.set_attn_implementation("sdpa")
    reader = StateReader(loaded.model, LAYERS)
    for text in recorder.texts:
        read = reader.read(torch.tensor([text.ids]))
        for kept, state in zip(text.states, (read.hidden, *read.aux), strict=True):
            assert kept.shape == (len(text.ids) - 1, state.shape[-1])
            torch.testing.assert_close(kept, state[0, :-1], rtol=1e-3, atol=1e-3)


def test_what_is_not_to_be_recorded_is_not(loaded: LoadedTarget) -> None:
    engine = AnswerEngine(loaded, 200, {"most_bytes": 2**28})
    answer(engine, speculative=False)
    assert isinstance(engine.recorder, StateRecorder)
    assert engine.recorder.texts == []
    engine.close()
    engine = AnswerEngine(loaded, 200)
    assert answer(engine)
    assert engine.recorder is None
    engine.close()


def test_texts_beyond_the_memory_limit_are_left_out_and_counted(loaded: LoadedTarget) -> None:
    most = 4 * 256 * 64  # 64 tokens, one kind of states
    engine = AnswerEngine(loaded, 200, {"most_bytes": most})
    texts = answer(engine)
    recorder = engine.recorder
    assert recorder is not None
    assert recorder.num_left_out + len(recorder.texts) == len(texts)
    assert 0 < recorder.num_left_out < len(texts)
    assert sum(part.nbytes for text in recorder.texts for part in text.states) <= most
    engine.close()


def test_a_preempted_text_is_recorded_from_where_it_starts_again() -> None:
    """What is delivered again replaces what was held from there on."""
    recorded = _replayed([(0, [4, 5, 6]), (3, [7]), (2, [6, 8]), (4, [9])])
    assert recorded.ids == (4, 5, 6, 8, 9)
    assert recorded.states[0][:, 0].tolist() == [1.0, 102.0, 103.0, 4.0]


def _replayed(pieces: list[tuple[int, list[int]]]) -> RecordedText:
    """Deliver pieces of one request; the state of position p has the value p, plus 100 where it comes again."""
    recorder = StateRecorder(StateRecorderConfig(num_speculative_tokens=1), cast(TargetInfo, None))
    seen = 0
    for start, ids in pieces:
        positions = torch.arange(start, start + len(ids), dtype=torch.float32)
        states = (positions + 100.0 * (start < seen))[:, None].expand(-1, 3)
        seen = max(seen, start + len(ids))
        batch: Any = SimpleNamespace(
            hidden_states=states,
            aux_hidden_states=(),
            request_ids=("r",),
            starts=[start],
            counts=[len(ids)],
            sampling_params=(SamplingParams(),),
            new_token_ids=torch.tensor(ids).numpy(),
            batch_size=1,
        )
        recorder.propose(cast(ProposeBatch, batch))
    recorder.finish(["r"], FinishReason.LENGTH)
    (text,) = recorder.texts
    return text
