"""`thinking_token_budget`: the end of reasoning is forced along drafted paths, as an independent rule says, and is drafted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from speccheck.engines import engine_of, letter_tokenizer, make_llm, scripted, spelled, tokens_of
from speccheck.models import few_ids, prompts, tiny
from speccheck.naive import Constraints, text_probs
from speccheck.texts import excess_of_texts

from specdec import LLM, ConfigError, SamplingParams
from specdec.text.reasoning import Reasoning, ReasoningMarkers

START, CLOSE, SENTENCE = (1,), (2, 3), (4,)
CONFIG = {
    "reasoning_start_str": spelled(START),
    "reasoning_end_str": spelled(SENTENCE + CLOSE),
    "reasoning_close_str": spelled(CLOSE),
}


def required(prompt: Sequence[int], output: Sequence[int], budget: int) -> int | None:
    """The token that must follow an output that obeys the rule, read from its begin."""
    text, must = list(prompt), list[int]()
    opened = max((i for i, token in enumerate(text) if token == START[0]), default=-1)
    closed = max((i for i in range(len(text)) if tuple(text[i : i + 2]) == CLOSE), default=-1)
    length = len(text) - 1 - opened if opened > closed else None
    for token in [*output, None]:
        if length is not None and length >= budget and not must:
            must = [CLOSE[1]] if length and text[-1] == CLOSE[0] else [*SENTENCE, *CLOSE]
        if token is None:
            return must[0] if must else None
        text.append(token)
        if must:
            assert must.pop(0) == token
            length = length if must else None
        elif length is None:
            length = 0 if token == START[0] else None
        else:
            length = None if length and tuple(text[-2:]) == CLOSE else length + 1
    raise AssertionError


class Naive:
    """The same as a logits processor, which knows the prompt."""

    def __init__(self, prompt: Sequence[int], budget: int) -> None:
        self.prompt, self.budget = prompt, budget

    def __call__(self, output: list[int], logits: torch.Tensor) -> torch.Tensor:
        token = required(self.prompt, output, self.budget)
        if token is not None:
            logits = torch.full_like(logits, -math.inf)
            logits[token] = 0.0
        return logits


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 4), max_size=8), st.integers(0, 4), st.data())
def test_what_must_follow(prompt: list[int], budget: int, data: st.DataObject) -> None:
    """Of texts that obey the rule, drafted paths included."""
    prompt = [0, *(token for token in prompt if token != START[0]), *data.draw(st.sampled_from([(), START]))]
    markers = ReasoningMarkers(START, CLOSE, SENTENCE + CLOSE)
    reasoning = Reasoning(markers, budget, np.array(prompt))
    output = list[int]()
    for token in data.draw(st.lists(st.integers(0, 4), max_size=14)):
        forced = required(prompt, output, budget)
        draft = data.draw(st.lists(st.integers(0, 4), max_size=3))
        found = reasoning.forced_behind(draft, None)
        assert found[0] == forced == (reasoning.forced()[0] if reasoning.forced() else None)
        for count in range(1, len(draft) + 1):
            path = draft[:count]
            obeys = all(
                required(prompt, [*output, *path[:i]], budget) in (None, path[i]) for i in range(count)
            )
            assert not obeys or found[count] == required(prompt, [*output, *path], budget)
        output.append(token if forced is None else forced)
        reasoning.follow(output)


def test_siblings_have_states_of_their_own() -> None:
    reasoning = Reasoning(ReasoningMarkers(START, CLOSE, CLOSE), 1, np.array([0]))
    reasoning.follow([1])
    assert reasoning.forced_behind([0, 2, 3], [-1, -1, 1]) == [None, 2, 3, None]


@pytest.mark.parametrize(
    ("prompt", "is_always_open", "is_open"),
    [
        ([0, 1], False, True), ([0, 1, 4], False, True), ([0, 1, 2, 3], False, False), ([0], False, False), ([0], True, True),
        ([0, 2, 3], True, False), ([0, 2, 3, 4], True, False), ([0, 2, 3, 4, 4], True, True), ([2, 3, 1], False, True),
    ],
)  # fmt: skip
def test_the_prompt_decides_whether_a_text_begins_with_reasoning(prompt, is_always_open, is_open) -> None:
    markers = ReasoningMarkers(START, CLOSE, CLOSE, is_always_open)
    assert bool(Reasoning(markers, 0, np.array(prompt)).forced()) == is_open


def test_tokens_are_counted_without_markers() -> None:
    reasoning = Reasoning(ReasoningMarkers(START, CLOSE, CLOSE), None, np.array([0]))
    text = [4, 1, 4, 4, 2, 0, 2, 3, 4, 1, 2, 3, 0]
    assert reasoning.count(text) == 4
    assert reasoning.count([*text, 1, 0]) == 5


@pytest.fixture(scope="module")
def small() -> Any:
    return few_ids(5, flatness=0.25)


def engine(model: Any, speculation: dict[str, Any] | None = None, **keys: Any) -> LLM:
    return make_llm(model, speculation, tokenizer=letter_tokenizer(), max_model_len=32, **keys)


NGRAM = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1}
SPECULATION = {
    "none": None,
    "chain": scripted(k=4, wrong=0.1),
    "tree": scripted(k=6, wrong=0.1, shape="tree"),
    "ngram": NGRAM,
}
PROMPTS = [[0, 4, 1], [0, 4, 4], [1, 4, 0, 2], [0, 2]]


@pytest.mark.sampled(6, slow=6)
@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("sampler", ["strict", "probabilistic"])
@pytest.mark.parametrize("name", SPECULATION)
def test_texts_are_those_of_the_rule(small, name, sampler, temperature) -> None:
    """With every budget, so that the marker is forced at every place of a draft."""
    plain, speculation = engine(small), SPECULATION[name]
    for budget in range(7):
        keys: dict[str, Any] = {
            "temperature": temperature,
            "max_tokens": 20,
            "ignore_eos": True,
            "seed": budget,
        }
        own = [SamplingParams(**keys, logits_processors=[Naive(prompt, budget)]) for prompt in PROMPTS]
        expected = tokens_of(plain, PROMPTS, own)
        if speculation is not None:
            known = [[*prompt, *text] for prompt, text in zip(PROMPTS, expected, strict=True)]
            speculation = speculation | ({} if name == "ngram" else {"texts": known})
            speculation |= {"rejection_sample_method": sampler}
        llm = engine(small, speculation, reasoning_config=CONFIG)
        texts = tokens_of(llm, PROMPTS, SamplingParams(**keys, thinking_token_budget=budget))
        for prompt, text in zip(PROMPTS, texts, strict=True):
            assert all(required(prompt, text[:i], budget) in (None, token) for i, token in enumerate(text))
        if sampler == "strict" or not temperature or speculation is None:
            assert texts == expected


@pytest.mark.parametrize("name", ["chain", "tree"])
def test_the_law_is_that_of_enumeration(small, name) -> None:
    prompt, keys = [0, 4, 1], {"temperature": 0.9, "max_tokens": 5, "ignore_eos": True}
    enumerated = SamplingParams(**keys, logits_processors=[Naive(prompt, 1)])
    law = text_probs(small, prompt, enumerated, Constraints(), lambda text: False)
    best = sorted(law, key=law.__getitem__, reverse=True)[:2]
    speculation = {**SPECULATION[name], "texts": [[*prompt, *text] for text in best]}
    speculation["rejection_sample_method"] = "probabilistic"
    llm = engine(small, speculation, reasoning_config=CONFIG, max_num_seqs=64)
    params = [SamplingParams(**keys, seed=seed, thinking_token_budget=1) for seed in range(2000)]
    counts = Counter(map(tuple, tokens_of(llm, [prompt] * len(params), params)))
    assert excess_of_texts(counts, law) < 1
    assert engine_of(llm).metrics.num_accepted_tokens > 1000


def test_forced_tokens_are_drafted(small) -> None:
    llm = engine(small, reasoning_config=CONFIG)
    params = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True, thinking_token_budget=0)
    [output] = llm.generate([[0, 1]], params)
    sample = output.outputs[0]
    assert sample.token_ids[:3] == [4, 2, 3]
    assert sample.is_from_draft[:3] == [False, True, True]
    assert sample.num_reasoning_tokens == 1


def test_a_budget_overrides_other_parameters() -> None:
    model = tiny("llama")
    llm = make_llm(model, tokenizer=letter_tokenizer(), reasoning_config=CONFIG)
    params = SamplingParams(
        temperature=0.0, max_tokens=6, ignore_eos=True, thinking_token_budget=0, allowed_token_ids=[7, 8], logit_bias={2: -100},
        presence_penalty=2.0,
    )  # fmt: skip
    [output] = llm.generate([[*prompts([5])[0], 1]], params)
    assert output.outputs[0].token_ids[:3] == [4, 2, 3]
    assert set(output.outputs[0].token_ids[3:]) <= {7, 8}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"reasoning_start_str": "ab"}, "reasoning_end_str"),
        ({**CONFIG, "reasoning_close_str": "ab"}, "must end with reasoning_close_str 'ab'"),
        ({**CONFIG, "other": 1}, "other"),
        ("<think>", "must be a mapping, or JSON text of one"),
    ],
)
def test_wrong_markers_are_refused(small, config, message) -> None:
    with pytest.raises(ConfigError, match=message):
        engine(small, reasoning_config=config)


def test_a_budget_needs_markers(small) -> None:
    llm = engine(small)
    with pytest.raises(ConfigError, match="thinking_token_budget needs the markers of the model's reasoning"):
        llm.generate([[0]], SamplingParams(thinking_token_budget=3))
    with pytest.raises(ConfigError, match="reasoning_config needs a tokenizer"):
        make_llm(small, max_model_len=32, reasoning_config=CONFIG)
    assert SamplingParams(thinking_token_budget=-1).thinking_token_budget is None
    with pytest.raises(ConfigError, match="thinking_token_budget"):
        SamplingParams(thinking_token_budget=-2)


def test_a_budget_goes_on_where_all_else_is_forbidden(small) -> None:
    params = SamplingParams(
        temperature=0.0,
        max_tokens=3,
        min_tokens=3,
        allowed_token_ids=[0],
        stop_token_ids=[0],
        thinking_token_budget=0,
    )
    [output] = engine(small, reasoning_config=CONFIG).generate([[0, 1]], params)
    assert (output.outputs[0].token_ids, output.outputs[0].finish_reason) == ([4, 2, 3], "length")
