"""Greedy identity with `transformers` for tiny random models of every served architecture, in float32.

No speculation, and right, partly right and random drafts, as chains and as trees; prompts longer than the sliding
window; several prompts in one batch; prompts in chunks; with and without fused layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from speccheck.identity import assert_identical, references
from speccheck.models import CONFIGS, MAX_LEN, MORE_CONFIGS, copied, prompts, tiny
from transformers import PreTrainedModel

from specdec import LLM, SamplingParams

MAX_TOKENS = 24
PROMPTS = prompts([3, 41, 1, 23, 70], seed=3)


@dataclass(frozen=True)
class Case:
    """One way to run."""

    speculation: dict[str, Any] | None
    arguments: dict[str, Any]


def scripted(k: int, shape: str, wrong: float) -> dict[str, Any]:
    return {
        "method": "speccheck.proposers.Scripted",
        "num_speculative_tokens": k,
        "shape": shape,
        "wrong": wrong,
        "seed": k,
    }


CHUNKED = {"max_num_batched_tokens": 19}
CASES = {
    "none": Case(None, {}),
    "chain-1": Case(scripted(1, "chain", 0.3), CHUNKED),
    "chain-4": Case(scripted(4, "chain", 0.2), {}),
    "chain-8-right": Case(scripted(8, "chain", 0.0), CHUNKED),
    "tree-4": Case(scripted(4, "tree", 0.3), {}),
    "tree-8": Case(scripted(8, "tree", 0.1), CHUNKED),
    "mixed-8-random": Case(scripted(8, "mixed", 1.0), {"max_num_seqs": 2}),
}
EAGER = ("none", "chain-8-right", "tree-4")
"""Cases that run without fused layers as well; models without a fused form run these only once."""


@dataclass
class Subject:
    model: PreTrainedModel
    expected: list[list[int]]


def subject(name: str) -> Subject:
    model = tiny(name)
    return Subject(model, references(model, PROMPTS, MAX_TOKENS))


def run(subject: Subject, case: Case, enforce_eager: bool) -> LLM:
    """Run a case and compare; returns the LLM for its metrics."""
    speculation = case.speculation
    if speculation is not None:
        texts = [[*p, *e] for p, e in zip(PROMPTS, subject.expected, strict=True)]
        speculation = speculation | {"texts": texts}
    llm = LLM(
        copied(subject.model),
        speculative_config=speculation,
        skip_tokenizer_init=True,
        enforce_eager=enforce_eager,
        **{"max_model_len": MAX_LEN, "max_num_seqs": 8} | case.arguments,
    )
    params = SamplingParams(temperature=0.0, max_tokens=MAX_TOKENS, ignore_eos=True)
    outputs = llm.generate(PROMPTS, params)
    got = [output.outputs[0].token_ids for output in outputs]
    assert_identical(subject.model, PROMPTS, subject.expected, got)
    return llm


def check(name: str, labels: Sequence[str] = tuple(CASES), eager: Sequence[str] = EAGER) -> None:
    """Run cases of one model."""
    made = subject(name)
    assert len({tuple(tokens) for tokens in made.expected}) == len(PROMPTS)  # the prompt matters
    for label in labels:
        llm = run(made, CASES[label], enforce_eager=False)
        metrics = llm._built.engine.metrics
        if label == "chain-8-right":
            assert metrics.num_accepted_tokens > 0.75 * len(PROMPTS) * MAX_TOKENS
        elif label in ("chain-1", "chain-4", "tree-4", "tree-8"):
            assert 0 < metrics.num_accepted_tokens < metrics.num_draft_tokens
        assert metrics.proposer_errors == metrics.proposer_nodes_cut == 0
    if len(llm._built.scorer.runner.forms[0]) > 1:  # type: ignore[attr-defined]  # the default scorer
        for label in eager:
            run(made, CASES[label], enforce_eager=True)


def some(index: int) -> tuple[list[str], str]:
    """Return right drafts in chunks, a chain and a tree that are partly wrong, and a case without fused layers."""
    chains, trees = ("chain-1", "chain-4"), ("tree-4", "tree-8", "mixed-8-random")
    labels = ["chain-8-right", chains[index % 2], trees[index % 3]]
    return labels, EAGER[index % 3]


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.sampled(6, slow=5)
def test_greedy_text_is_that_of_transformers(name: str) -> None:
    labels, eager = some(list(CONFIGS).index(name))
    check(name, labels, [eager])


def test_text_without_drafts_is_that_of_transformers() -> None:
    for name in ("llama", "gemma2", "gpt2"):
        check(name, ["none"], [])


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_greedy_text_is_that_of_transformers_in_every_case(name: str) -> None:
    check(name)


@pytest.mark.full
@pytest.mark.parametrize("name", MORE_CONFIGS)
def test_greedy_text_is_that_of_transformers_for_more_models(name: str) -> None:
    check(name)
