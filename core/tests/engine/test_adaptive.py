"""Adaptive drafting in the engine: the same text, nothing lost while the proposer is not called."""

from __future__ import annotations

import pytest
from speccheck.engines import engine_of, greedy, make_llm, proposer_of, scripted, tokens_of

from specdec import ConfigError, FinishReason, SamplingParams
from specdec.adaptive import AdaptiveDepth, backoff, batch_size_costs


@pytest.fixture
def restful(monkeypatch):
    """Two steps of drafts, two without, three of rest, and again: whatever is measured."""
    monkeypatch.setattr(batch_size_costs, "_FIRST_STEPS", 2)
    monkeypatch.setattr(batch_size_costs, "_PLAIN_STEPS", 2)
    monkeypatch.setattr(backoff, "_TRIAL_STEPS", 2)
    monkeypatch.setattr(backoff, "_FIRST_SUSPENSION", 3)
    monkeypatch.setattr(backoff, "_LONGEST_SUSPENSION", 3)
    monkeypatch.setattr(backoff, "_TO_BEGIN", 1e9)
    monkeypatch.setattr(backoff, "_TO_GO_ON", 1e9)


@pytest.mark.parametrize("shape", ["chain", "tree"])
@pytest.mark.parametrize("recorder", ["Recorder", "HiddenRecorder"])
def test_a_proposer_that_rests_is_told_everything_later(subject, recorder, shape, restful) -> None:
    """The recorders complain of tokens and states that come twice, late or not at all."""
    speculation = scripted(recorder, 3, texts=subject.texts, shape=shape, wrong=0.3, adaptive=True)
    llm = make_llm(subject.model, speculation)
    proposer = proposer_of(llm)
    assert tokens_of(llm, subject.prompts, greedy(32)) == subject.expected
    assert proposer.complaints == []
    metrics = engine_of(llm).metrics
    assert metrics.steps_without_drafts > 5
    assert metrics.num_drafts > 5
    assert metrics.proposer_errors == 0


def test_what_ends_during_a_rest_is_told_to_proposers_of_tokens(subject, restful) -> None:
    llm = make_llm(subject.model, scripted("Recorder", 3, texts=subject.texts, wrong=1.0, adaptive=True))
    proposer = proposer_of(llm)
    reasons: list[FinishReason] = []
    finish = proposer.finish

    def spy(request_ids, reason) -> None:
        reasons.extend([reason] * len(request_ids))
        finish(request_ids, reason)

    proposer.finish = spy
    llm.generate(subject.prompts, [greedy(count) for count in (7, 9, 11, 12, 14, 15)])
    assert reasons == [FinishReason.LENGTH] * 6  # an error would say that the last tokens are missing
    assert proposer.complaints == []


def test_states_of_a_long_rest_are_delivered_before_there_are_too_many(subject, restful, monkeypatch) -> None:
    monkeypatch.setattr("specdec.engine.speculation.delivery._MAX_KEPT", 20)
    monkeypatch.setattr(backoff, "_FIRST_SUSPENSION", 10**6)
    monkeypatch.setattr(backoff, "_LONGEST_SUSPENSION", 10**6)
    llm = make_llm(
        subject.model, scripted("HiddenRecorder", 3, texts=subject.texts, adaptive=True), max_num_seqs=1
    )
    proposer = proposer_of(llm)
    tokens_of(llm, subject.prompts[:1], greedy(32))
    assert proposer.complaints == []
    assert engine_of(llm).metrics.steps_without_drafts > 10


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_text_is_that_without_speculation(subject, temperature) -> None:
    params = [
        SamplingParams(temperature=temperature, seed=i, max_tokens=60, ignore_eos=True) for i in range(6)
    ]
    expected = tokens_of(make_llm(subject.model), subject.prompts, params)
    llm = make_llm(subject.model, scripted(k=5, texts=subject.texts, wrong=0.2, adaptive=True))
    for _ in range(3):
        assert tokens_of(llm, subject.prompts, params) == expected


@pytest.mark.parametrize("sampler", ["strict", "probabilistic"])
@pytest.mark.parametrize("given", [None, True, False])
def test_it_is_on_by_default_where_verdicts_do_not_depend_on_drafts(
    subject, sampler, given, defaults_of_users
) -> None:
    llm = make_llm(subject.model, scripted(adaptive=given, rejection_sample_method=sampler))
    is_on = engine_of(llm)._speculation.draft_depth is not None
    assert is_on == (sampler == "strict" if given is None else given)


def test_any_other_value_is_refused(subject) -> None:
    with pytest.raises(ConfigError, match="adaptive"):
        make_llm(subject.model, scripted(adaptive="sometimes"))


def test_drafts_that_never_stand_are_left_out(subject) -> None:
    llm = make_llm(
        subject.model, scripted(k=6, texts=subject.texts, wrong=1.0, adaptive=True), max_num_seqs=1
    )
    for _ in range(4):
        tokens_of(llm, subject.prompts, greedy(32))
    metrics = engine_of(llm).metrics
    assert metrics.steps_without_drafts > 0.7 * metrics.num_steps


def test_steps_in_which_the_proposer_fails_say_nothing_of_drafts(subject, monkeypatch) -> None:
    told: list[int] = []
    observe = AdaptiveDepth.observe

    def spy(self, sequences, limits, num_drafted, *arguments, **keys) -> None:
        told.append(sum(num_drafted))
        observe(self, sequences, limits, num_drafted, *arguments, **keys)

    monkeypatch.setattr(AdaptiveDepth, "observe", spy)
    speculation = scripted(
        k=3, texts=subject.texts, adaptive=True, fails_every=1, on_proposer_error="fallback"
    )
    llm = make_llm(subject.model, speculation, max_num_seqs=1)
    assert tokens_of(llm, subject.prompts, greedy(32)) == subject.expected
    assert engine_of(llm).metrics.proposer_pauses > 0
    assert told == []


def test_a_proposer_that_rests_is_not_called_for_the_end_of_a_text(subject, restful, monkeypatch) -> None:
    monkeypatch.setattr(backoff, "_FIRST_SUSPENSION", 10**6)
    monkeypatch.setattr(backoff, "_LONGEST_SUSPENSION", 10**6)
    llm = make_llm(
        subject.model, scripted("HiddenRecorder", 3, texts=subject.texts, adaptive=True), max_num_seqs=1
    )
    proposer, metrics = proposer_of(llm), engine_of(llm).metrics
    called, ended = [], []
    propose, finish = proposer.propose, proposer.finish

    def spy(batch):
        called.append(metrics.num_steps)
        return propose(batch)

    def spy_finish(request_ids, reason) -> None:
        ended.append(reason)
        finish(request_ids, reason)

    proposer.propose, proposer.finish = spy, spy_finish
    tokens_of(llm, subject.prompts[:1], greedy(32))
    assert called[-1] < metrics.num_steps - 10
    assert ended == [FinishReason.ERROR]  # its last tokens were not told
    assert proposer.complaints == []


def test_requests_without_speculation_leave_no_drafts_out(subject) -> None:
    llm = make_llm(subject.model, scripted(k=3, texts=subject.texts, adaptive=True))
    plain = [greedy(12, speculative=False)] * len(subject.prompts)
    assert tokens_of(llm, subject.prompts, plain) == [text[:12] for text in subject.expected]
    metrics = engine_of(llm).metrics
    assert (metrics.steps_without_drafts, metrics.steps_with_shorter_drafts) == (0, 0)
