"""The text is the target's, and members together draft at least about as well as the best of them."""

from __future__ import annotations

from typing import Any

import pytest
from speccheck.engines import zoo

import specdec_zoo
from specdec import LLM, SamplingParams
from specdec.metrics import PerProposer

HEAD = {"method": "eagle3", "model": "zoo", "num_speculative_tokens": 3}
COPIES = {"method": "ngram", "num_speculative_tokens": 5}
DRAFT = {"method": "draft_model", "model": "zoo", "num_speculative_tokens": 3}
BOTH = {"proposers": [{"method": "suffix"}, HEAD]}
TREES = [{"method": "suffix", "use_tree_spec": True}, {**HEAD, "tree_top_k": 2}]
KINDS: dict[str, dict[str, Any]] = {
    "choose": BOTH,
    "choose, two heads": {"proposers": [{"method": "suffix"}, HEAD, {**HEAD, "method": "eagle"}]},
    "choose, target's cache": {"proposers": [{"method": "suffix"}, {"method": "self"}, HEAD]},
    "choose, trees": {"proposers": TREES},
    "cascade": {"policy": "cascade", **BOTH},
    "cascade, draft": {"policy": "cascade", "proposers": [COPIES, DRAFT]},
    "cascade, trees": {"policy": "cascade", "proposers": TREES},
    "extend": {"policy": "extend", "proposers": [HEAD, {"method": "suffix"}]},
    "extend, draft": {"policy": "extend", "proposers": [COPIES, DRAFT]},
    "longest": {"policy": "longest", **BOTH},
    "merge": {"policy": "merge", "proposers": [*TREES, COPIES]},
    "nested": {"policy": "longest", "proposers": [COPIES, {"method": "composite", **BOTH}]},
    "probabilistic": {**BOTH, "rejection_sample_method": "probabilistic"},
    "block": {**BOTH, "rejection_sample_method": "block"},
}


LIKE_OTHERS = ("choose, two heads", "cascade", "extend, draft", "longest", "probabilistic")
"""Kinds whose policies and members others have: `cascade` is run below, `longest` in `nested`."""


def make_llm(**keys: Any) -> LLM:
    return LLM(
        zoo(),
        max_num_seqs=4,
        strict_drafts=True,
        speculative_config={"method": "composite", "on_proposer_error": "raise", **keys},
    )


def run(llm: LLM, temperature: float) -> list[Any]:
    prompts = [prompt["prompt"] for prompt in specdec_zoo.prompts(8)]
    params = [
        SamplingParams(temperature=temperature, seed=i, max_tokens=40, ignore_eos=True)
        for i in range(len(prompts))
    ]
    return llm.generate(prompts, params, use_tqdm=False)


def tokens(outputs: list[Any]) -> list[list[int]]:
    return [output.outputs[0].token_ids for output in outputs]


def tokens_per_step(outputs: list[Any]) -> float:
    count = sum(len(output.outputs[0].token_ids) for output in outputs)
    return count / (count - sum(output.metrics.num_accepted_tokens for output in outputs))


@pytest.fixture(scope="module")
def plain() -> dict[float, list[list[int]]]:
    llm = LLM(zoo())
    return {temperature: tokens(run(llm, temperature)) for temperature in (0.0, 0.8)}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow if kind in LIKE_OTHERS else ()) for kind in KINDS]
)
@pytest.mark.sampled(3, slow=3)
def test_text_is_that_of_plain_decoding(kind: str, plain: dict[float, list[list[int]]]) -> None:
    llm = make_llm(**KINDS[kind])
    assert tokens(run(llm, 0.0)) == plain[0.0]
    if "rejection_sample_method" not in KINDS[kind]:  # others draw another text, same distribution
        assert tokens(run(llm, 0.8)) == plain[0.8]


def test_prompts_that_come_again_are_not_computed_again(plain: dict[float, list[list[int]]]) -> None:
    llm = make_llm(**KINDS["cascade"])
    first, second = run(llm, 0.0), run(llm, 0.0)
    assert tokens(first) == tokens(second) == plain[0.0]
    assert sum(output.num_cached_tokens for output in second) > sum(o.num_cached_tokens for o in first)


@pytest.mark.slow
def test_together_they_draft_more_than_each_alone() -> None:
    together = tokens_per_step(run(make_llm(**KINDS["cascade"]), 0.0))
    alone = [tokens_per_step(run(make_llm(**member), 0.0)) for member in ({"method": "suffix"}, HEAD)]
    assert together > 1.1 * max(alone)


def test_every_member_has_counters_of_its_own() -> None:
    llm = make_llm(**KINDS["cascade"])
    prompts = [prompt["prompt"] for prompt in specdec_zoo.prompts(4)]
    params = SamplingParams(temperature=0.0, max_tokens=40, return_draft_steps=True)
    steps = [
        step
        for output in llm.generate(prompts, params, use_tqdm=False)
        for step in output.outputs[0].draft_steps or []
        if step.token_ids
    ]
    found = {m.name: m.values for m in llm.get_metrics() if isinstance(m, PerProposer)}
    assert set(found["specdec:proposer_drafts"]) == {"suffix", "eagle3"}
    for name in ("suffix", "eagle3"):
        own = [step for step in steps if step.proposer == name]
        assert found["specdec:proposer_drafts"][name] == len(own) > 0
        assert found["specdec:proposer_draft_tokens"][name] == sum(len(step.token_ids) for step in own)
        assert found["specdec:proposer_accepted_tokens"][name] == sum(len(step.accepted) for step in own)
