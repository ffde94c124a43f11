"""In the engine: what the proposer drafted is the reference's, given the states that the target itself has."""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from eagle_check.layout import Layout
from eagle_check.session import config_of
from eagle_check.shape import Shape
from eagle_check.targets import make_head, make_reference
from head_check.target import states_of, target_model
from head_check.watch import ENGINES, PROMPTS, Watch

from specdec import LLM, SamplingParams

ONE = Shape(is_eagle3=False, has_own_lm_head=False)
THREE = Shape(num_logits=40, has_map=True)
AUX = (1, 3, 6)


def make_llm(folder: str, shape: Shape, keys: dict[str, Any], **arguments: Any) -> tuple[LLM, Watch]:
    speculation = {
        "method": "eagle3" if shape.is_eagle3 else "eagle",
        "model": folder,
        "num_speculative_tokens": 4,
        "on_proposer_error": "raise",
    } | keys
    if speculation.get("draft_sample_method") == "probabilistic":
        speculation["rejection_sample_method"] = "probabilistic"
    model = copy.deepcopy(target_model()).to(arguments.get("dtype", torch.float32))
    arguments = {"max_model_len": 96, "skip_tokenizer_init": True, "strict_drafts": True, **arguments}
    llm = LLM(model, speculative_config=speculation, **arguments)
    return llm, Watch(llm)


PARAMS = [
    SamplingParams(temperature=1.0, seed=index, max_tokens=14, ignore_eos=True)
    for index in range(len(PROMPTS))
]


KINDS = {"1": (ONE, "chain"), "3": (THREE, "chain"), "3 tree": (THREE, "drawn tree")}


@pytest.mark.parametrize(
    ("shape", "kind", "engine"),
    [
        pytest.param(*KINDS[name], engine, id=f"{name}-{engine}", marks=marks)
        for i, name in enumerate(KINDS)
        for j, engine in enumerate(ENGINES)
        for marks in [() if i == 1 or (i + j) % 3 == 0 else pytest.mark.slow]  # the chain has all
    ],
)
@pytest.mark.sampled(3, slow=3)
def test_drafts_in_the_engine_are_the_references(
    tmp_path: Path, shape: Shape, kind: str, engine: str
) -> None:
    path, tensors = make_head(tmp_path, shape, Layout(aux_ids=AUX))
    llm, watch = make_llm(path, shape, config_of(kind), **ENGINES[engine])
    outputs = llm.generate(PROMPTS, PARAMS)
    if engine == "cached":
        watch.drafts.clear()
        again = llm.generate(PROMPTS, PARAMS)
        assert [o.num_cached_tokens for o in again] == [(len(p) - 1) // 2 * 2 for p in PROMPTS]
        assert [o.outputs[0].token_ids for o in again] == [o.outputs[0].token_ids for o in outputs]
    assert watch.states == {}
    reference = make_reference(shape, tensors)
    assert len(watch.drafts) > 20
    assert len({name for name, *_ in watch.drafts}) == len(PROMPTS) or engine == "preempted"
    for _, text, row in watch.drafts[:: 1 if kind == "chain" else 2]:
        states = states_of(text, AUX)
        assert row.probs is not None
        for node in {-1, *row.parents}:
            drafted, above = [], node
            while above >= 0:
                drafted.insert(0, row.tokens[above])
                above = row.parents[above]
            expected = reference.after(text, states, drafted).log_softmax(-1)
            got = row.probs[node + 1].double().log()
            torch.testing.assert_close(got, expected, atol=3e-5, rtol=3e-5)


@pytest.mark.parametrize("num_blocks", [29, 35])
def test_who_outlives_a_preemption_keeps_its_drafts(tmp_path: Path, num_blocks: int) -> None:
    path, _ = make_head(tmp_path, THREE, Layout(aux_ids=AUX))
    cramped = {"block_size": 4, "max_num_seqs": 2, "num_gpu_blocks_override": num_blocks}
    llm, watch = make_llm(path, THREE, config_of("chain"), **cramped)
    prompts = [PROMPTS[3], PROMPTS[3][::-1]]
    params = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)
    outputs = llm.generate(prompts, params)
    assert llm._built.engine.metrics.num_preemptions > 0
    for output, prompt in zip(outputs, prompts, strict=True):
        drafted_behind = [len(text) for name, text, _ in watch.drafts if name == output.request_id]
        gaps = [b - a for a, b in pairwise([*drafted_behind, len(prompt) + 60])]
        assert max(gaps) <= 6  # k is 4


def test_a_head_in_bfloat16_is_near_the_reference(tmp_path: Path) -> None:
    for is_eager in (False, True):
        path, tensors = make_head(tmp_path / str(is_eager), THREE, Layout(aux_ids=AUX))
        llm, watch = make_llm(path, THREE, config_of("chain"), dtype=torch.bfloat16, enforce_eager=is_eager)
        head = watch.proposer._head  # type: ignore[attr-defined]  # of this package's
        assert {p.dtype for p in head.parameters()} == {torch.bfloat16}
        llm.generate(PROMPTS[:2], PARAMS[:2])
        reference = make_reference(THREE, tensors)
        for _, text, row in watch.drafts:
            assert row.probs is not None
            expected = reference.after(text, states_of(text, AUX), []).softmax(-1)
            assert (row.probs[0].double() - expected).abs().sum() < 0.15


def test_more_requests_than_compiled_chains_take(tmp_path: Path) -> None:
    path, tensors = make_head(tmp_path, THREE, Layout(aux_ids=AUX))
    llm, watch = make_llm(path, THREE, config_of("chain"), max_num_seqs=48)
    prompts = [[5 + index, 9, index] for index in range(44)]
    llm.generate(prompts, SamplingParams(temperature=1.0, seed=3, max_tokens=4, ignore_eos=True))
    reference = make_reference(THREE, tensors)
    assert len({name for name, *_ in watch.drafts}) == 44
    for _, text, row in watch.drafts[::7]:
        assert row.probs is not None
        *path, _ = row.tokens
        expected = reference.after(text, states_of(text, AUX), path).log_softmax(-1)
        torch.testing.assert_close(row.probs[len(path)].double().log(), expected, atol=3e-5, rtol=3e-5)


def test_a_layer_read_twice(tmp_path: Path) -> None:
    """Targets of six layers have L / 2 = L - 3."""
    shape = replace(THREE, num_aux=3)
    path, tensors = make_head(tmp_path, shape, Layout(aux_ids=(2, 5, 5)))
    llm, watch = make_llm(path, shape, config_of("chain"))
    llm.generate(PROMPTS[:1], PARAMS[:1])
    reference = make_reference(shape, tensors)
    for _, text, row in watch.drafts:
        assert row.probs is not None
        expected = reference.after(text, states_of(text, (2, 5, 5)), []).log_softmax(-1)
        torch.testing.assert_close(row.probs[0].double().log(), expected, atol=3e-5, rtol=3e-5)


def test_an_aborted_request_leaves_nothing_behind(tmp_path: Path) -> None:
    path, _ = make_head(tmp_path, ONE)
    llm, watch = make_llm(path, ONE, {})
    stream = llm.stream(PROMPTS[0], PARAMS[0])
    next(stream)
    assert watch.states
    stream.close()
    llm.generate(PROMPTS[1:2], PARAMS[1:2])
    assert watch.states == {}
    pool = watch.proposer._rows.pool  # type: ignore[attr-defined]  # ditto
    assert pool._runs == {}
