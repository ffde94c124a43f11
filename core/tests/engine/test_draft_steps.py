"""What each step drafted and what was accepted, where it is asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from speccheck.engines import engine_of, make_llm, proposer_of, scripted, tokens_of

from specdec import CompletionOutput, SamplingParams

MAX_TOKENS = 20


def params(index: int = 0, **keys) -> SamplingParams:
    return SamplingParams(temperature=0.8, seed=index, max_tokens=MAX_TOKENS, ignore_eos=True, **keys)


def check(sample: CompletionOutput) -> None:
    """Hold the steps of a sample against its tokens: they make them up, and each accepted path is spelled by them."""
    assert sample.draft_steps is not None
    place = 0
    flags = []
    for step in sample.draft_steps:
        path = [step.token_ids[node] for node in step.accepted]
        assert path == sample.token_ids[place : place + len(path)]
        assert [step.parents[node] for node in step.accepted] == [-1, *step.accepted][: len(path)]
        assert len(step.parents) == len(step.token_ids)
        assert step.num_emitted in (len(path), len(path) + 1)
        assert (step.proposer is None) == (not step.token_ids)
        flags += [True] * len(path) + [False] * (step.num_emitted - len(path))
        place += step.num_emitted
    times = [step.time for step in sample.draft_steps]
    assert times == sorted(times)
    assert times[0] > 0
    assert place == len(sample.token_ids)
    assert flags == sample.is_from_draft


@pytest.mark.parametrize("shape", ["chain", "tree"])
def test_steps_make_up_the_tokens(subject, shape) -> None:
    plain = make_llm(subject.model)
    expected = tokens_of(plain, subject.prompts, [params(i) for i in range(len(subject.prompts))])
    texts = [[*p, *e] for p, e in zip(subject.prompts, expected, strict=True)]
    llm = make_llm(subject.model, scripted(k=4, shape=shape, wrong=0.3) | {"texts": texts})
    wanted = [params(i, return_draft_steps=True) for i in range(len(subject.prompts))]
    outputs = llm.generate(subject.prompts, wanted)
    assert [output.outputs[0].token_ids for output in outputs] == expected
    for output in outputs:
        (sample,) = output.outputs
        check(sample)
        steps = sample.draft_steps
        assert {step.proposer for step in steps if step.token_ids} == {proposer_of(llm).name}
        assert sum(len(step.token_ids) for step in steps) == output.metrics.num_draft_tokens
        assert sum(len(step.accepted) for step in steps) == output.metrics.num_accepted_tokens > 0
    if shape == "tree":
        parents = [step.parents for output in outputs for step in output.outputs[0].draft_steps]
        assert any(links != list(range(-1, len(links) - 1)) for links in parents)


def test_without_drafts_steps_are_empty_and_nothing_is_kept_unasked(subject) -> None:
    llm = make_llm(subject.model)
    asked, unasked = llm.generate(subject.prompts[:2], [params(return_draft_steps=True), params()])
    check(asked.outputs[0])
    assert {(step.proposer, step.num_emitted) for step in asked.outputs[0].draft_steps} == {(None, 1)}
    assert unasked.outputs[0].draft_steps is None


def test_a_draft_that_names_its_proposers_wrongly_is_no_draft(subject) -> None:
    llm = make_llm(subject.model, scripted(k=4, wrong=0.0) | {"texts": subject.prompts})
    proposer = proposer_of(llm)
    honest = proposer.propose
    proposer.propose = lambda batch: replace(honest(batch), proposers=("a",) * (batch.batch_size + 1))
    expected = tokens_of(make_llm(subject.model), subject.prompts[:1], [params()])
    assert tokens_of(llm, subject.prompts[:1], [params()]) == expected
    assert engine_of(llm).metrics.proposer_errors > 0
