"""The replay of `late_drafts.py`: without a lag it counts what the engine counts, and with one what alignment leaves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from common.drafts import draft_counters
from late_drafts import METHODS, VARIANTS, Counts, Text, answered, left_of, measured, opened, replay, verified
from never_slower import steps_of

import specdec_zoo
from specdec import LLM, SamplingParams
from specdec.engine_options import EngineOptions
from specdec.interfaces import FinishReason
from specdec_cli.bench.suites import OVERALL
from specdec_hosting import HostTarget
from specdec_runtime.loading import LoadedTarget, load_target

NOW, LATE, CORRECTED = VARIANTS[:3]
LENGTH = 1024
TEXT = Text("t", [5, 6, 7, 8, 9, 1, 5], [6, 7, 8, 9, 1, 2, 3], 7, FinishReason.LENGTH)
"""Its output repeats the prompt, and ends in tokens that nothing foretells."""


@pytest.fixture(scope="module")
def target() -> LoadedTarget:
    return load_target(EngineOptions(model="zoo"))


@pytest.fixture(scope="module")
def prompts(target: LoadedTarget) -> list[list[int]]:
    assert target.tokenizer is not None
    return [list(target.tokenizer(p["prompt"])["input_ids"]) for p in specdec_zoo.prompts(kind="edit")[:4]]


@pytest.fixture(scope="module", params=[0.0, 0.8])
def texts(target: LoadedTarget, prompts: list[list[int]], request: Any) -> Iterator[list[Text]]:
    llm = LLM(target, deterministic=True, max_model_len=LENGTH)
    yield answered(llm, prompts, ["edit"] * len(prompts), request.param, 64)
    llm.shutdown()


def speculated(
    target: LoadedTarget, texts: Sequence[Text], config: dict[str, Any], temperature: float
) -> Counts:
    """Return what the engine counts with drafts, one request at a time; raises if a text is another one."""
    llm = LLM(
        target,
        speculative_config=config | {"adaptive": False},
        deterministic=True,
        max_model_len=LENGTH,
        max_num_seqs=1,
        max_num_batched_tokens=LENGTH,
        enable_prefix_caching=False,
    )
    for number, text in enumerate(texts):
        params = SamplingParams(temperature=temperature, seed=number, max_tokens=text.max_tokens)
        (output,) = llm.generate([text.prompt], params, use_tqdm=False)
        assert output.outputs[0].token_ids == text.token_ids
    found, num_steps = (
        draft_counters(llm.get_metrics()),
        steps_of(llm) - len(texts),
    )  # one step for each prompt
    llm.shutdown()
    num_emitted = sum(len(text.token_ids) - 1 for text in texts)
    return Counts(
        num_steps,
        found["num_drafts"],
        found["num_draft_tokens"],
        found["num_accepted_tokens"],
        num_emitted,
    )


@pytest.mark.parametrize("method", METHODS, ids=lambda method: f"{method[0]['method']} {method[1]}")
@pytest.mark.sampled(2, slow=2)
def test_without_a_lag_the_replay_counts_what_the_engine_counts(
    target: LoadedTarget, texts: list[Text], method: tuple[Any, int, Any], request: Any
) -> None:
    config, k, _ = method
    temperature = request.node.callspec.params["texts"]
    real = speculated(target, texts, config | {"num_speculative_tokens": k}, temperature)
    host = HostTarget(vocab_size=target.model.config.vocab_size, max_model_len=LENGTH)
    assert measured(texts, method, NOW, host)[OVERALL] == real
    assert real.num_accepted_tokens > 0


def counted(variant: Any, k: int = 2) -> Counts:
    counts = Counts()
    hosted = opened(METHODS[0][0], k, variant, HostTarget(vocab_size=16, max_model_len=64))
    replay(hosted, "0", TEXT, k, variant, [counts])
    assert not hosted.request_ids
    return counts


def test_steps_of_a_text() -> None:
    """By hand, with k = 2, for a text that copies the prompt and then ends in something new.

    Without a lag `5 6` is known after the first token: 7 8 (both right, then 9), 1 5 (one right, then 2), and none (3).
    Beside the prompt's step nothing can be drafted: `1 5` is new. Beside the first step, from `5 6`: 7 8 9. It emits 7, and 8 9
    remains. Beside that step, from `6 7`: 8 9 1 5, and no more for want of room. It emits 8 9 1, and 5 remains, which is wrong.
    Beside that step, from `9 1`: 5. It emits 2, and nothing remains.
    """
    assert counted(NOW) == Counts(3, 2, 4, 3, 6)
    assert counted(LATE) == Counts(4, 2, 3, 2, 6)
    assert counted(NOW).tokens_per_step == 2.0
    assert counted(NOW).mean_acceptance_length == 2.5
    assert counted(LATE).drafted_share == 0.5


def test_a_corrected_token_leaves_a_draft() -> None:
    assert left_of([5, 6, 7, 8], [5, 9], 3, False) == []
    assert left_of([5, 6, 7, 8], [5, 9], 3, True) == [7, 8]
    assert counted(CORRECTED).num_drafts >= counted(LATE).num_drafts


def test_what_is_verified_ends_with_the_text() -> None:
    assert verified([1, 2, 3], [1, 2]) == (2, [1, 2])
    assert verified([1, 3], [1, 2, 4]) == (1, [1, 2])
    assert verified([], [4, 5]) == (0, [4])
