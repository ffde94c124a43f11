"""Requests whose hidden states were lost, or that a proposer leaves out: they return, and metrics say what it cost."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
import torch
from speccheck.engines import engine_of, greedy, make_llm, proposer_of, scripted
from speccheck.proposers import HiddenRecorder, Recorder, Scripted
from speccheck.states import check_states

from specdec.interfaces import Draft, LeftOut, ProposeBatch

_MODULE = __name__


class FailsOnce(HiddenRecorder):
    """Raises in its fifth call, when it has states of every request."""

    def propose(self, batch: ProposeBatch) -> Draft:
        if self.num_calls == 4:
            self.num_calls += 1
            raise RuntimeError("once")
        return super().propose(batch)


class FailsWhenTold(HiddenRecorder):
    """Raises whenever a text comes again."""

    def propose(self, batch: ProposeBatch) -> Draft:
        self.num_calls += 1
        if self.num_calls == 5 or (self.num_calls > 5 and any(batch.counts)):
            raise RuntimeError("never again")
        return Draft.from_lists([[]] * batch.batch_size)


class Spoils(Scripted):
    """A scripted proposer by another name."""


class Full(Recorder):
    """Has room for no request from its third call to its tenth; does without hidden states."""

    left_out: Mapping[str, LeftOut] = {}
    drafted: ClassVar[dict[str, int]] = {}

    def propose(self, batch: ProposeBatch) -> Draft:
        draft = super().propose(batch)
        if 3 <= self.num_calls < 10:
            self.left_out = dict.fromkeys(batch.request_ids, LeftOut("it is full", can_return=False))
            return Draft.from_lists([[]] * batch.batch_size)
        self.left_out = {}
        return draft


class Lies(Recorder):
    """What it says of requests is no mapping of ids to reasons."""

    left_out: Any = {}

    def propose(self, batch: ProposeBatch) -> Draft:
        self.left_out = {batch.request_ids[0]: "no room"}
        return super().propose(batch)


def keys_of(subject: Any, name: str, **keys: Any) -> dict[str, Any]:
    known = {"on_proposer_error": "fallback", "adaptive": False, "texts": subject.texts}
    return scripted(name, 3, **known | keys) | {"method": f"{_MODULE}.{name}"}


@pytest.mark.parametrize("run", [{}, {"max_num_batched_tokens": 16}, {"enable_prefix_caching": False}])
def test_states_that_a_failure_lost_are_computed_again(subject, run) -> None:
    llm = make_llm(subject.model, keys_of(subject, "FailsOnce"), block_size=4, **run)
    proposer = proposer_of(llm)
    short = [row for row, prompt in enumerate(subject.prompts) if len(prompt) < 30]
    outputs = llm.generate([subject.prompts[row] for row in short], greedy(32))
    assert [output.outputs[0].token_ids for output in outputs] == [subject.expected[row] for row in short]
    assert proposer.complaints == []
    metrics, count = engine_of(llm).metrics, len(short)
    assert count > 2
    assert (metrics.proposer_errors, metrics.requests_left_out, metrics.requests_returned) == (
        1,
        count,
        count,
    )
    lost = sum(sum(output.metrics.tokens_without_drafts.values()) for output in outputs)
    assert lost == metrics.tokens_without_drafts > 0
    for output, row in zip(outputs, short, strict=True):
        check_states(subject.model, proposer, output.request_id, subject.texts[row])
        [reason] = output.metrics.tokens_without_drafts
        assert "failed" in reason
        assert sum(output.outputs[0].is_from_draft[-12:]) > 6, "drafts are accepted again"


def test_adaptive_lets_requests_return_that_nothing_can_be_drafted_for(subject) -> None:
    llm = make_llm(subject.model, keys_of(subject, "FailsOnce", adaptive=True), block_size=4)
    [output] = llm.generate(subject.prompts[:1], greedy(32))
    assert output.outputs[0].token_ids == subject.expected[0]
    metrics = engine_of(llm).metrics
    assert (metrics.proposer_errors, metrics.requests_left_out, metrics.requests_returned) == (1, 1, 1)


def test_a_return_that_fails_is_not_repeated_in_every_step(subject) -> None:
    llm = make_llm(subject.model, keys_of(subject, "FailsWhenTold"), block_size=4)
    [output] = llm.generate(subject.prompts[:1], greedy(120))
    metrics = engine_of(llm).metrics
    assert 1 <= metrics.requests_returned <= 3
    assert metrics.tokens_rerun <= 120
    assert len(output.outputs[0].token_ids) == 120


def test_a_return_must_pay(subject) -> None:
    """Few tokens are to come, so that a long prompt is not computed again for them."""
    llm = make_llm(subject.model, keys_of(subject, "FailsOnce"), block_size=4)
    prompt = subject.texts[0] * 3
    [output] = llm.generate([prompt], greedy(12))
    assert len(prompt) > 100
    metrics = engine_of(llm).metrics
    assert (metrics.requests_left_out, metrics.requests_returned) == (1, 0)
    assert sum(output.metrics.tokens_without_drafts.values()) == metrics.tokens_without_drafts > 0


def test_what_a_proposer_leaves_out_is_told(subject) -> None:
    llm = make_llm(subject.model, keys_of(subject, "Full"))
    outputs = llm.generate(subject.prompts, greedy(32))
    assert [output.outputs[0].token_ids for output in outputs] == subject.expected
    metrics, count = engine_of(llm).metrics, len(subject.prompts)
    assert (metrics.requests_left_out, metrics.requests_returned, metrics.tokens_rerun) == (count, 0, 0)
    assert [output.metrics.tokens_without_drafts for output in outputs] == [{"it is full": 7}] * count


def test_nonsense_about_requests_costs_the_step(subject) -> None:
    llm = make_llm(subject.model, keys_of(subject, "Lies"))
    outputs = llm.generate(subject.prompts, greedy(32))
    assert [output.outputs[0].token_ids for output in outputs] == subject.expected
    assert engine_of(llm).metrics.proposer_errors > 0
    paused = "the proposer is paused after failures or overruns"
    assert all(output.metrics.tokens_without_drafts.get(paused, 0) > 0 for output in outputs)


def test_drafts_that_spoil_a_pass_are_tried_again_later(subject) -> None:
    """A NaN of a drafted token reaches all rows of its pass, so each trial costs a step."""
    model = copy.deepcopy(subject.model)
    params = greedy(140)
    [plain] = make_llm(model).generate(subject.prompts[:1], params)
    expected = plain.outputs[0].token_ids
    dead = next(token for token in range(3, 96) if token not in expected)
    with torch.no_grad():
        model.set_output_embeddings(copy.deepcopy(model.get_output_embeddings()))
        model.config.tie_word_embeddings = False
        model.get_input_embeddings().weight[dead] = float("nan")
    params = params.model_copy(update={"logit_bias": {dead: -100.0}})
    prompt = subject.prompts[0]
    text = [*prompt, *expected[:2], dead, dead, dead]
    llm = make_llm(model, keys_of(subject, "Spoils", texts=[text, [*prompt, *expected]]))
    [output] = llm.generate([prompt], params)
    assert output.outputs[0].token_ids == expected
    metrics = engine_of(llm).metrics
    assert (metrics.requests_left_out, metrics.requests_returned) == (1, 1)
    assert 64 <= metrics.tokens_without_drafts <= 70
    assert sum(output.outputs[0].is_from_draft[80:]) > 30
