"""Texts are those of plain decoding, whatever the engine does meanwhile."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

import specdec_zoo
from specdec import LLM, SamplingParams
from specdec_runtime.drafting import OwnIds

IDS = AutoTokenizer.from_pretrained(specdec_zoo.path("target"))(
    "\n".join(p["prompt"] for p in specdec_zoo.prompts(3))
)
PROMPTS = [IDS["input_ids"][100 * i : 100 * i + 40 + 20 * i] for i in range(3)]
RUNS: dict[str, dict[str, Any]] = {
    "float32": {"dtype": "float32"},
    "bfloat16": {"dtype": "bfloat16", "deterministic": True},
    "chunks": {"dtype": "float32", "max_num_batched_tokens": 24},
    "preempted": {"dtype": "float32", "max_model_len": 160, "block_size": 4, "num_gpu_blocks_override": 46},
    "without kernels": {"dtype": "float32", "enforce_eager": True},
}


def params(temperature: float, **keys: Any) -> list[SamplingParams]:
    return [
        SamplingParams(temperature=temperature, seed=i, max_tokens=48, ignore_eos=True, **keys)
        for i in range(len(PROMPTS))
    ]


def made(**keys: Any) -> LLM:
    config = {"method": "self", "num_speculative_tokens": 4, "on_proposer_error": "raise", "adaptive": False}
    arguments = {key: keys.pop(key) for key in {key for run in RUNS.values() for key in run} if key in keys}
    return LLM("zoo", speculative_config=config | keys, strict_drafts=True, **arguments)


def tokens(llm: LLM, prompts: list[list[int]], given: list[SamplingParams]) -> list[list[int]]:
    return [output.outputs[0].token_ids for output in llm.generate(prompts, given)]


@cache
def plain_engine(dtype: str) -> LLM:
    return LLM("zoo", dtype=dtype, deterministic=dtype == "bfloat16")


@cache
def _plain(dtype: str, temperature: float, keys: str) -> list[list[int]]:
    return tokens(plain_engine(dtype), PROMPTS, params(temperature, **json.loads(keys)))


def plain(temperature: float, dtype: str = "float32", **keys: Any) -> list[list[int]]:
    """Return the texts of plain decoding, made once."""
    return _plain(dtype, temperature, json.dumps(keys))


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.sampled(2, slow=2)
def test_texts_are_those_of_plain_decoding(run) -> None:
    llm = made(**RUNS[run])
    for temperature in (0.0, 0.8):
        given = params(temperature)
        expected = plain(temperature, RUNS[run]["dtype"])
        for _ in range(2):  # the second time prompts are in the prefix cache
            assert tokens(llm, PROMPTS, given) == expected
        for prompt, each, text in zip(PROMPTS, given, expected, strict=True):
            assert tokens(llm, [prompt], [each]) == [text]
    metrics = llm._built.engine.metrics
    assert metrics.num_accepted_tokens > 0.8 * metrics.num_draft_tokens
    assert (metrics.num_preemptions > 0) == (run == "preempted")


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param({"weights": "int4"}, marks=pytest.mark.slow),
        {"weights": "int4", "group_size": 64, "head_weights": "int8"},
        {"tree_top_k": 2},
        pytest.param({"skip_layers": [2, 5]}, marks=pytest.mark.slow),
        {"skip_layers": 2, "weights": "own"},
        pytest.param({"attention_window": 64}, marks=pytest.mark.slow),
        pytest.param({"draft_vocab_size": 512}, marks=pytest.mark.slow),
        {"draft_vocab_size": 512, "weights": "int4", "tree_top_k": 2},
        {"draft_vocab_size": 512, "head_weights": "own"},
    ],
)
@pytest.mark.sampled(2, slow=2)
def test_every_form_gives_the_same_text(keys) -> None:
    llm = made(dtype="float32", **keys)
    # A grammar, and a cut of the distribution, which compiled loops do not take.
    for own in ({}, {"top_p": 0.9}, {"structured_outputs": {"regex": "[0-9]{40}"}}):
        assert tokens(llm, PROMPTS, params(0.8, **own)) == plain(0.8, **own)
    metrics = llm._built.engine.metrics
    assert metrics.num_accepted_tokens > 0.2 * metrics.num_draft_tokens > 0


@pytest.mark.slow
def test_a_draft_names_the_ids_of_its_own_text_beside_the_frequent_ones(monkeypatch) -> None:
    accepted = []
    for temperature in (0.0, 0.8):
        expected = plain(temperature)
        for finds_others in (True, False):
            with monkeypatch.context() as patch:
                if not finds_others:
                    patch.setattr(OwnIds, "of", lambda self, request_id, token_ids: np.empty(0, np.int64))
                llm = made(dtype="float32", draft_vocab_size=256)
                assert tokens(llm, PROMPTS, params(temperature)) == expected
            accepted.append(llm._built.engine.metrics.num_accepted_tokens)
    assert accepted[0] > accepted[1] + 5, accepted
    assert accepted[2] > accepted[3] + 5, accepted


@pytest.mark.parametrize(
    ("keys", "names_own"),
    [
        ({}, True),
        ({"tree_top_k": 2}, False),
        ({"rejection_sample_method": "probabilistic"}, False),
        ({"draft_vocab_size": None}, False),
    ],
)
@pytest.mark.sampled(1, slow=2)
def test_own_ids_are_looked_for_where_a_loop_names_them(keys, names_own) -> None:
    llm = made(dtype="float32", **({"draft_vocab_size": 256} | keys))
    assert (llm._built.engine.proposer._rows._own_ids is not None) == names_own


def test_a_draft_that_attends_to_the_newest_rows_errs_only_where_others_count() -> None:
    accepted = []
    for window in (64, 512):
        llm = made(dtype="float32", weights="own", attention_window=window)
        assert tokens(llm, PROMPTS, params(0.8)) == plain(0.8)
        metrics = llm._built.engine.metrics
        accepted.append(metrics.num_accepted_tokens / metrics.num_draft_tokens)
    assert 0.5 < accepted[0] < 1.0  # contexts have 40 to 128 tokens
    assert accepted[1] == 1.0


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.sampled(1, slow=1)
def test_a_draft_ends_at_a_near_tie(temperature: float) -> None:
    """Of two texts alike, the draft that may end at one is the beginning of the other."""
    first, texts = {}, []
    for margin in (0.0, 1.0, 16.0):
        llm = made(dtype="float32", draft_margin=margin)
        proposer, rows = llm._built.engine.proposer, []
        propose = proposer.propose
        proposer.propose = lambda batch, p=propose, r=rows: r.append(p(batch)) or r[-1]
        texts.append(tokens(llm, PROMPTS, params(temperature)))
        first[margin] = next(draft.rows for draft in rows if draft.token_ids.numel())
    assert texts[0] == texts[1] == texts[2]
    assert any(len(row) == 4 for row in first[0.0])
    for none, some, nearly_all in zip(*first.values(), strict=True):
        assert none[: len(some)] == some
        assert some[: len(nearly_all)] == nearly_all
    assert sum(map(len, first[16.0])) < sum(map(len, first[1.0])) <= sum(map(len, first[0.0]))


def test_drafts_of_the_compiled_loop_and_of_torch_are_the_same() -> None:
    drafted = []
    for is_eager in (False, True):
        llm = made(dtype="float32", enforce_eager=is_eager, draft_margin=0)
        proposer, rows = llm._built.engine.proposer, []
        propose = proposer.propose
        proposer.propose = lambda batch, p=propose, r=rows: r.append(p(batch)) or r[-1]
        tokens(llm, PROMPTS, params(0.8))
        drafted.append([draft.rows for draft in rows])
    assert drafted[0] == drafted[1]
