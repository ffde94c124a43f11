"""In the engine: drafts are the reference's given the target's own states, and the text is the target's."""

from __future__ import annotations

import copy
from collections.abc import Collection
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from dflash_check.session import make_reference
from dflash_check.shape import STAGES, Shape, make_head, make_staged
from head_check.target import states_of, target_model
from head_check.watch import ENGINES, PROMPTS, Watch
from transformers import AutoModelForCausalLM, PreTrainedModel

import specdec_zoo
from specdec import LLM, RequestOutput, SamplingParams

FLAT = Shape()
REDUCED = replace(FLAT, num_logits=40, has_map=True, has_own_lm_head=True)
WINDOWS = replace(FLAT, windows=(5, None), causal=(True, False))
SHAPES = {"flat": FLAT, "reduced": REDUCED, "windows": WINDOWS}
MAX_TOKENS = 14
WAYS: dict[str, dict[str, Any]] = {
    "chain": {},
    "tree": {"tree_top_k": 2},
    "threshold": {"draft_confidence_threshold": 0.05},
}
SEEDED = [SamplingParams(seed=i, max_tokens=MAX_TOKENS, ignore_eos=True) for i in range(len(PROMPTS))]


def pairs(ones: Collection[str], others: Collection[str], first: int = 0) -> list[Any]:
    """All pairs; at the default level, in turn, each of `others` with one of the `ones`, the other pairs are slow."""
    return [
        pytest.param(one, other, marks=() if (i + j + first) % len(ones) == 0 else pytest.mark.slow)
        for i, one in enumerate(ones)
        for j, other in enumerate(others)
    ]


def make_llm(folder: Path, shape: Shape | str, keys: dict[str, Any], **arguments: Any) -> LLM:
    """An engine with a random head of a shape, or with the stage of a family."""
    path = make_staged(folder, FLAT, shape) if isinstance(shape, str) else make_head(folder, shape)[0]
    speculation = {
        "method": "dflash",
        "model": path,
        "num_speculative_tokens": 4,
        "on_proposer_error": "raise",
    }
    model = copy.deepcopy(target_model()).to(arguments.get("dtype", torch.float32))
    arguments = {"max_model_len": 96, "skip_tokenizer_init": True, "strict_drafts": True, **arguments}
    return LLM(model, speculative_config=speculation | keys, **arguments)


def tokens(outputs: list[RequestOutput]) -> list[list[int]]:
    return [output.outputs[0].token_ids for output in outputs]


def greedily(model: PreTrainedModel, prompts: list[list[int]], count: int = MAX_TOKENS) -> list[list[int]]:
    """Return what `generate` of `transformers` says."""
    found = []
    for prompt in prompts:
        ids, given = torch.tensor([prompt]), {"do_sample": False, "pad_token_id": 0}
        mask = torch.ones_like(ids)
        out = model.generate(ids, attention_mask=mask, max_new_tokens=count, min_new_tokens=count, **given)
        found.append(out[0, len(prompt) :].tolist())
    return found


def test_an_embedding_of_its_own_takes_the_dtype_of_the_target(tmp_path: Path) -> None:
    shape = replace(FLAT, has_own_embedding=True, has_own_lm_head=True)
    llm = make_llm(tmp_path, shape, {}, dtype=torch.bfloat16)
    head = llm._built.engine.proposer._drafter._head
    assert {parameter.dtype for parameter in head.parameters()} == {torch.bfloat16}
    output = llm.generate(PROMPTS[:1], SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True))[0]
    assert output.metrics.num_draft_tokens > 0


@cache
def expected() -> list[list[int]]:
    return greedily(target_model(), PROMPTS)


@cache
def sampled() -> list[list[int]]:
    """What plain decoding says under `SEEDED`."""
    plain = LLM(copy.deepcopy(target_model()), max_model_len=96, skip_tokenizer_init=True)
    return tokens(plain.generate(PROMPTS, SEEDED))


@pytest.mark.parametrize(("kind", "engine"), pairs(SHAPES, ENGINES))
@pytest.mark.sampled(2, slow=3)
def test_drafts_in_the_engine_are_the_references(tmp_path: Path, kind: str, engine: str) -> None:
    shape, drawn = SHAPES[kind], {"rejection_sample_method": "probabilistic"}
    llm = make_llm(tmp_path, shape, drawn, **ENGINES[engine])
    watch = Watch(llm)
    params = [SamplingParams(seed=i, max_tokens=MAX_TOKENS, ignore_eos=True) for i in range(len(PROMPTS))]
    outputs = llm.generate(PROMPTS, params)
    if engine == "cached":
        watch.drafts.clear()
        again = llm.generate(PROMPTS, params)
        assert [o.num_cached_tokens for o in again] == [(len(p) - 1) // 2 * 2 for p in PROMPTS]
        assert tokens(again) == tokens(outputs)
    assert watch.states == {}
    _, tensors = make_head(tmp_path, shape)
    reference = make_reference(shape, tensors)
    assert len(watch.drafts) > 20
    assert len({name for name, *_ in watch.drafts}) == len(PROMPTS) or engine == "preempted"
    for _, text, row in watch.drafts:
        logits = reference.guesses(text, states_of(text, shape.aux)[1:], len(row.tokens))
        assert row.probs is not None
        got = row.probs[: len(row.tokens)].double().log()
        torch.testing.assert_close(got, logits.log_softmax(-1), atol=3e-5, rtol=3e-5)


@pytest.mark.parametrize(("kind", "engine"), pairs(SHAPES, ENGINES, first=1))
def test_greedy_text_is_that_of_transformers(tmp_path: Path, kind: str, engine: str) -> None:
    params = SamplingParams(temperature=0, max_tokens=MAX_TOKENS, ignore_eos=True)
    llm = make_llm(tmp_path, SHAPES[kind], {"num_speculative_tokens": 5}, **ENGINES[engine])
    outputs = llm.generate(PROMPTS, params)
    assert tokens(outputs) == expected()
    assert sum(output.metrics.num_draft_tokens for output in outputs) > 50
    one = llm.generate(PROMPTS[3:4], params)
    assert tokens(one) == expected()[3:4]


@pytest.mark.parametrize("kind", ["flat", "windows"])
@pytest.mark.sampled(1, slow=1)
def test_preempted_requests_keep_their_text_and_their_drafts(tmp_path: Path, kind: str) -> None:
    cramped = {"block_size": 4, "max_num_seqs": 2, "num_gpu_blocks_override": 29}
    llm = make_llm(tmp_path, SHAPES[kind], {}, **cramped)
    watch, prompts = Watch(llm), [PROMPTS[3], PROMPTS[3][::-1]]
    outputs = llm.generate(prompts, SamplingParams(temperature=0, max_tokens=60, ignore_eos=True))
    assert llm._built.engine.metrics.num_preemptions > 0
    assert tokens(outputs) == greedily(target_model(), prompts, 60)
    for output, prompt in zip(outputs, prompts, strict=True):
        drafted_behind = [len(text) for name, text, _ in watch.drafts if name == output.request_id]
        gaps = [b - a for a, b in pairwise([*drafted_behind, len(prompt) + 60])]
        assert max(gaps) <= 6  # k is 4


@pytest.mark.parametrize(("kind", "way"), pairs(SHAPES, WAYS))
def test_sampled_text_is_that_of_plain_decoding(tmp_path: Path, kind: str, way: str) -> None:
    outputs = make_llm(tmp_path, SHAPES[kind], WAYS[way]).generate(PROMPTS, SEEDED)
    assert tokens(outputs) == sampled()
    assert sum(output.metrics.num_accepted_tokens for output in outputs) > 0


@pytest.mark.parametrize(("family", "way"), pairs(STAGES, WAYS))
def test_sampled_text_behind_a_stage_is_that_of_plain_decoding(tmp_path: Path, family: str, way: str) -> None:
    outputs = make_llm(tmp_path, family, WAYS[way]).generate(PROMPTS, SEEDED)
    assert tokens(outputs) == sampled()
    assert sum(output.metrics.num_accepted_tokens for output in outputs) > 0


def test_a_confidence_head_ends_drafts(tmp_path: Path) -> None:
    params, lengths = SamplingParams(temperature=0, max_tokens=MAX_TOKENS, ignore_eos=True), []
    for threshold in (0.0, 0.5, 1.0):
        llm = make_llm(tmp_path, "dspark", {"draft_confidence_threshold": threshold})
        watch = Watch(llm)
        assert tokens(llm.generate(PROMPTS, params)) == expected()
        drafted = [(row.tokens, row.confidence or ()) for _, _, row in watch.drafts]
        for ids, confidences in drafted:  # a draft ends with the first token that is not sure
            assert all(confidence >= threshold for confidence in confidences[: len(ids) - 1])
        lengths.append(sum(len(ids) for ids, _ in drafted) / len(drafted))
    assert lengths[0] > lengths[1] + 0.1 > lengths[2] + 0.2
    assert lengths[2] == 1


def test_an_aborted_request_leaves_nothing_behind(tmp_path: Path) -> None:
    llm = make_llm(tmp_path, FLAT, {})
    watch, params = Watch(llm), SamplingParams(temperature=0, max_tokens=MAX_TOKENS, ignore_eos=True)
    stream = llm.stream(PROMPTS[0], params)
    for _ in range(3):
        next(stream)
    assert watch.states
    stream.close()
    assert tokens(llm.generate(PROMPTS[1:3], params)) == expected()[1:3]
    assert watch.states == {}
    assert watch.proposer._rows.pool._runs == {}  # type: ignore[attr-defined, union-attr]  # ditto


def test_a_head_in_bfloat16_is_near_the_reference(tmp_path: Path) -> None:
    for shape in (FLAT, WINDOWS):
        drawn = {"rejection_sample_method": "probabilistic"}
        llm = make_llm(tmp_path, shape, drawn, dtype=torch.bfloat16)
        watch = Watch(llm)
        llm.generate(PROMPTS[:2], SamplingParams(seed=1, max_tokens=MAX_TOKENS, ignore_eos=True))
        reference = make_reference(shape, make_head(tmp_path, shape)[1])
        assert len(watch.drafts) > 4
        for _, text, row in watch.drafts:
            logits = reference.guesses(text, states_of(text, shape.aux)[1:], len(row.tokens))
            assert row.probs is not None
            assert (row.probs[: len(row.tokens)].double() - logits.softmax(-1)).abs().sum(-1).mean() < 0.15


def test_text_on_the_zoo_is_that_of_transformers(tmp_path: Path) -> None:
    shape = Shape(
        vocab=4096, hidden=256, target_hidden=256, head_dim=64, intermediate=320, num_logits=512, has_map=True,
        has_own_lm_head=True, mask_id=4095, aux=(2, 5), num_target_layers=15,
    )  # fmt: skip
    path, _ = make_head(tmp_path, shape)
    config = {"method": "dflash", "model": path, "num_speculative_tokens": 5, "on_proposer_error": "raise"}
    prompts = [[(7 * i * i + 3 * i + n) % 4096 for i in range(n)] for n in (9, 30, 2)]
    reference = AutoModelForCausalLM.from_pretrained(specdec_zoo.path("target"), dtype=torch.float32).eval()
    llm = LLM(model="zoo", dtype="float32", speculative_config=config)
    params = SamplingParams(temperature=0, max_tokens=MAX_TOKENS, min_tokens=MAX_TOKENS)
    assert tokens(llm.generate(prompts, params)) == greedily(reference, prompts)
