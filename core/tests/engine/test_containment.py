"""Whatever a proposer does, the output is what it would have been, and the books show what happened."""

from __future__ import annotations

import logging

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from speccheck.engines import engine_of, greedy, make_llm, proposer_of, scripted, tokens_of
from speccheck.malformed import MALFORMED

from specdec import FinishReason, SamplingParams
from specdec.engine.containment import guard as guard_module
from specdec.engine.containment.draft import DraftError

SAMPLED = SamplingParams(temperature=0.8, seed=7, max_tokens=20, ignore_eos=True)
CUT = {
    "above vocabulary", "negative", "huge id", "padding inside", "too long",
    "parent after child", "own parent", "parent below -1", "lifted caps",
}  # fmt: skip
"""Drafts of which a prefix can be scored; the rest is cut off and counted."""
ERRORS = {
    "none", "text", "lists", "too few rows", "too many rows", "one dimension", "three dimensions", "token ids none",
    "parents of other width", "parents as list", "q of wrong shape", "q as list",
    "has_probs of wrong shape", "confidence of wrong shape", "unprintable error", "writes",
    "nan ids", "fractional ids", "parents nan", "parents of floats",
}  # fmt: skip
"""What is no draft of the batch at all, or raises."""


@pytest.fixture(scope="module")
def sampled(subject):
    """What plain sampling gives."""
    return tokens_of(make_llm(subject.model), subject.prompts, SAMPLED)


@pytest.mark.parametrize("kind", MALFORMED)
def test_malformed_drafts_change_nothing(subject, sampled, kind) -> None:
    speculation = scripted(
        "Recorder", 4, texts=subject.texts, malformed_every=3, kinds=(kind,), shape="mixed"
    )
    llm = make_llm(subject.model, speculation, max_num_seqs=4)
    proposer = proposer_of(llm)
    assert tokens_of(llm, subject.prompts, greedy(32)) == subject.expected
    assert tokens_of(llm, subject.prompts, SAMPLED) == sampled
    metrics = engine_of(llm).metrics
    assert proposer.num_malformed > 3
    assert proposer.complaints == []
    assert proposer.held == {}
    if kind in CUT:
        assert metrics.proposer_nodes_cut > 0
        assert metrics.proposer_errors == 0
    if kind in ERRORS:
        assert metrics.proposer_errors >= proposer.num_malformed - 2
        assert any(reason is FinishReason.ERROR for _, reason, _ in proposer.finished)


def test_every_kind_is_accounted_for() -> None:
    harmless = {"nan q", "confidence nan"}
    assert CUT | ERRORS | harmless == set(MALFORMED)
    assert not CUT & ERRORS


TEMPERS = {
    "k": st.integers(1, 9),
    "seed": st.integers(0, 10**6),
    "wrong": st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    "shape": st.sampled_from(["chain", "tree", "mixed"]),
    "fails_every": st.sampled_from([0, 2, 3, 5]),
    "malformed_every": st.sampled_from([0, 2, 5]),
    "kinds": st.lists(st.sampled_from(sorted(MALFORMED)), min_size=1, max_size=4),
}
RUNS = st.fixed_dictionaries(
    {
        "max_num_seqs": st.sampled_from([1, 3, 6]),
        "max_num_batched_tokens": st.sampled_from([7, 40, 2048]),
        "enforce_eager": st.booleans(),
    }
)


def check_any(subject, sampled, temper, run, order, is_greedy) -> None:
    """Run a proposer of any temper and compare the text with that of plain decoding."""
    llm = make_llm(subject.model, scripted("Recorder", texts=subject.texts, **temper), block_size=4, **run)
    proposer = proposer_of(llm)
    expected = subject.expected if is_greedy else sampled
    got = tokens_of(llm, [subject.prompts[i] for i in order], greedy(32) if is_greedy else SAMPLED)
    assert got == [expected[i] for i in order]
    assert proposer.complaints == []
    assert proposer.held == {}


def any_proposer(max_examples: int):
    def decorate(test):
        drawn = given(
            temper=st.fixed_dictionaries(TEMPERS),
            run=RUNS,
            order=st.permutations(range(6)),
            is_greedy=st.booleans(),
        )(test)
        return settings(
            max_examples=max_examples, deadline=None, suppress_health_check=[HealthCheck.too_slow]
        )(drawn)

    return decorate


@any_proposer(25)
def test_any_proposer_gives_exactly_the_same_text(subject, sampled, temper, run, order, is_greedy) -> None:
    check_any(subject, sampled, temper, run, order, is_greedy)


@pytest.mark.full
@any_proposer(400)
def test_any_proposer_gives_exactly_the_same_text_at_length(
    subject, sampled, temper, run, order, is_greedy
) -> None:
    check_any(subject, sampled, temper, run, order, is_greedy)


@pytest.mark.parametrize(("kind", "error"), [("none", DraftError), ("unprintable error", Exception)])
def test_raising_on_request(subject, kind, error) -> None:
    speculation = scripted(texts=subject.texts, malformed_every=3, kinds=(kind,), on_proposer_error="raise")
    llm = make_llm(subject.model, speculation)
    with pytest.raises(error):
        tokens_of(llm, subject.prompts, greedy(32))
    assert not engine_of(llm).has_work


def test_strict_drafts_raise(subject) -> None:
    for kind in ("above vocabulary", "too long", "own parent", "none"):
        speculation = scripted(texts=subject.texts, malformed_every=3, kinds=(kind,))
        llm = make_llm(subject.model, speculation, strict_drafts=True)
        with pytest.raises(DraftError):
            tokens_of(llm, subject.prompts, greedy(32))
    llm = make_llm(subject.model, scripted(texts=subject.texts), strict_drafts=True)
    assert tokens_of(llm, subject.prompts, greedy(32)) == subject.expected


def test_an_error_of_the_proposer_is_contained_under_strict_drafts(subject) -> None:
    llm = make_llm(subject.model, scripted(texts=subject.texts, fails_every=3), strict_drafts=True)
    assert tokens_of(llm, subject.prompts, greedy(32)) == subject.expected
    assert engine_of(llm).metrics.proposer_errors > 0


def test_the_engine_goes_on_after_a_raised_error(subject) -> None:
    speculation = scripted(texts=subject.texts, fails_every=4, on_proposer_error="raise")
    llm = make_llm(subject.model, speculation)
    with pytest.raises(RuntimeError, match="call 4 fails"):
        tokens_of(llm, subject.prompts, greedy(32))
    kv = engine_of(llm)._scheduler._kv
    assert kv.pool.num_free_slots == kv.pool.num_slots
    assert tokens_of(llm, [subject.prompts[0]], greedy(2)) == [subject.expected[0][:2]]


def test_after_repeated_failures_the_proposer_rests_and_comes_back_informed(
    subject, monkeypatch, caplog
) -> None:
    monkeypatch.setattr(guard_module, "_FIRST_PAUSE_STEPS", 5)
    speculation = scripted("Recorder", 1, texts=subject.texts, wrong=1.0)
    llm = make_llm(subject.model, speculation)
    proposer = proposer_of(llm)
    failing = [True]
    plain = proposer.draft
    seen: list[int] = []

    def draft(batch):
        seen.append(engine_of(llm).metrics.num_steps)
        if failing[0]:
            failing[0] = len(seen) < 3
            raise RuntimeError("broken")
        return plain(batch)

    proposer.draft = draft
    with caplog.at_level(logging.WARNING, logger="specdec"):
        assert tokens_of(llm, subject.prompts, greedy(32)) == subject.expected
    metrics = engine_of(llm).metrics
    assert (metrics.proposer_errors, metrics.proposer_pauses) == (3, 1)
    assert seen[:4] == [0, 1, 2, 8]  # five steps without it
    assert len([r for r in caplog.records if "broken" in r.message]) == 1  # logged once
    assert proposer.complaints == []
    for pieces in proposer.pieces.values():
        after = [start for start, _ in pieces]
        assert after[0] == 0
        assert after[3] == 0  # delivered again from the start
    assert metrics.num_drafts > 0
    assert {reason for _, reason, _ in proposer.finished} == {FinishReason.ERROR, FinishReason.LENGTH}


def test_pauses_get_longer(subject, monkeypatch) -> None:
    monkeypatch.setattr(guard_module, "_FIRST_PAUSE_STEPS", 2)
    llm = make_llm(subject.model, scripted("Recorder", 2, texts=subject.texts, fails_every=1))
    proposer = proposer_of(llm)
    steps: list[int] = []
    check = proposer.check
    proposer.check = lambda batch: (steps.append(engine_of(llm).metrics.num_steps), check(batch))
    assert tokens_of(llm, subject.prompts, greedy(32)) == subject.expected
    assert steps[:9] == [0, 1, 2, 5, 6, 7, 12, 13, 14]
    assert proposer.complaints == []


def test_requests_that_end_while_it_rests_teach_nothing_false(subject, monkeypatch) -> None:
    """STOP and LENGTH mean that everything was delivered; what ended during a pause was not."""
    monkeypatch.setattr(guard_module, "_FIRST_PAUSE_STEPS", 500)
    llm = make_llm(subject.model, scripted("Recorder", 2, texts=subject.texts, fails_every=2))
    proposer = proposer_of(llm)
    proposer.script = proposer.script.model_copy(update={"fails_every": 0, "sleep_s": 0.02})
    monkeypatch.setattr(guard_module, "_MIN_BUDGET_S", 0.001)
    monkeypatch.setattr(guard_module, "_BUDGET_FACTOR", 0.0)
    monkeypatch.setattr(guard_module, "_WARMUP_STEPS", 0)
    outputs = llm.generate(subject.prompts, greedy(32))
    assert [o.outputs[0].token_ids for o in outputs] == subject.expected
    assert engine_of(llm).metrics.proposer_overruns == 3
    assert engine_of(llm).metrics.proposer_pauses == 1
    texts = {o.request_id: [*o.prompt_token_ids, *o.outputs[0].token_ids] for o in outputs}
    assert {name for name, _, _ in proposer.finished} <= set(texts)
    for name, reason, held in proposer.finished:
        if reason in (FinishReason.STOP, FinishReason.LENGTH):
            assert held == texts[name]
    assert proposer.held == {}


def test_a_slow_call_or_two_is_counted_but_forgiven(subject, monkeypatch) -> None:
    monkeypatch.setattr(guard_module, "_MIN_BUDGET_S", 0.05)
    monkeypatch.setattr(guard_module, "_BUDGET_FACTOR", 0.0)
    monkeypatch.setattr(guard_module, "_WARMUP_STEPS", 0)
    speculation = scripted("Recorder", 1, texts=subject.texts, sleep_s=0.06, sleeps_every=9)
    llm = make_llm(subject.model, speculation)
    proposer = proposer_of(llm)
    assert tokens_of(llm, subject.prompts, greedy(32)) == subject.expected
    metrics = engine_of(llm).metrics
    assert metrics.proposer_overruns >= proposer.num_calls // 9
    assert metrics.proposer_errors == 0
    assert proposer.complaints == []


def test_errors_in_finish_are_contained(subject) -> None:
    llm = make_llm(subject.model, scripted("Recorder", 2, texts=subject.texts))
    proposer = proposer_of(llm)

    def finish(request_ids, reason) -> None:
        raise KeyError("cannot let go")

    proposer.finish = finish
    assert tokens_of(llm, subject.prompts, greedy(32)) == subject.expected
    assert engine_of(llm).metrics.proposer_errors > 0


def test_an_error_in_the_finish_of_an_abort_is_counted_though_no_step_follows(subject) -> None:
    llm = make_llm(subject.model, scripted("Recorder", 2, texts=subject.texts))

    def finish(request_ids, reason) -> None:
        raise SystemExit("cannot let go")

    stream = llm.stream(subject.prompts[0], greedy(32))
    next(stream)
    proposer_of(llm).finish = finish
    stream.close()
    counters = {metric.name: getattr(metric, "value", None) for metric in llm.get_metrics()}
    assert counters["specdec:proposer_errors"] == 1


def test_a_request_whose_abort_raised_is_gone(subject) -> None:
    llm = make_llm(subject.model, scripted("Recorder", 2, texts=subject.texts, on_proposer_error="raise"))
    proposer = proposer_of(llm)
    finish = proposer.finish

    def failing(request_ids, reason) -> None:
        proposer.finish = finish
        raise KeyError("cannot let go")

    proposer.finish = failing
    stream = llm.stream(subject.prompts[0], greedy(32))
    next(stream)
    with pytest.raises(KeyError, match="cannot let go"):
        engine_of(llm).abort(list(engine_of(llm)._requests))
    assert not engine_of(llm).has_work
    assert tokens_of(llm, subject.prompts[1:2], greedy(8)) == [subject.expected[1][:8]]


def test_all_sequences_that_ended_are_gone_where_finish_raises(subject) -> None:
    llm = make_llm(subject.model, scripted("Recorder", 2, texts=subject.texts, on_proposer_error="raise"))

    def failing(request_ids, reason) -> None:
        raise KeyError("cannot let go")

    proposer_of(llm).finish = failing
    stop = greedy(32).model_copy(update={"stop_token_ids": [subject.expected[0][3]], "ignore_eos": False})
    with pytest.raises(KeyError, match="cannot let go"):
        llm.generate(subject.prompts[:2], [stop, greedy(4)])
    engine = engine_of(llm)
    assert (engine._owners, engine._row_ids, engine._ended) == ({}, set(), [])


def test_an_abort_that_no_step_follows_finishes_what_ended_before(subject) -> None:
    """With its last tokens, also where letting go of the aborted request raises."""
    llm = make_llm(subject.model, scripted("Recorder", 2, texts=subject.texts, on_proposer_error="raise"))
    proposer, engine, input_processor = proposer_of(llm), engine_of(llm), llm._input_processor
    finish = proposer.finish

    def failing(request_ids, reason) -> None:
        finish(request_ids, reason)
        if reason is FinishReason.ABORT:
            raise KeyError("cannot let go")

    proposer.finish = failing
    for name, prompt, tokens in zip(("short", "long"), subject.prompts, (3, 32), strict=False):
        engine.add(input_processor.prepare(name, prompt, greedy(tokens), is_streaming=False))
    ended: list[str] = []
    while not ended:
        ended = [output.request_id for output in engine.step()]
    assert [sequence.request_id for sequence in engine._ended] == ended == ["short"]
    with pytest.raises(KeyError, match="cannot let go"):
        engine.abort(["long"])
    assert not engine.has_work
    assert (engine._owners, engine._row_ids, engine._ended) == ({}, set(), [])
    reasons = {name: (reason, held) for name, reason, held in proposer.finished}
    assert reasons["short"] == (FinishReason.LENGTH, [*subject.prompts[0], *subject.expected[0][:3]])
    assert reasons["long"][0] is FinishReason.ABORT
    assert proposer.held == {}


STATELESS = """
from specdec import Draft, Proposer

class Stateless(Proposer):
    name = "stateless"

    def propose(self, batch):
        states = batch.hidden_states
        return self.drafted(states)

    def drafted(self, states):
        return Draft.from_lists(states.argmax(-1, keepdim=True).tolist())
"""


def test_states_that_were_not_declared_are_named(subject, tmp_path, caplog) -> None:
    (tmp_path / "stateless.py").write_text(STATELESS)
    speculation = {"method": f"{tmp_path}/stateless.py:Stateless", "num_speculative_tokens": 2}
    assert tokens_of(make_llm(subject.model, speculation), subject.prompts, greedy(32)) == subject.expected
    remedy = "to read batch.hidden_states declare Capability.HIDDEN_STATES"
    assert f"stateless.py:12; {remedy}" in caplog.text
    raising = make_llm(subject.model, speculation | {"on_proposer_error": "raise"})
    with pytest.raises(AttributeError) as raised:
        tokens_of(raising, subject.prompts, greedy(32))
    assert raised.value.__notes__ == [f"proposer 'stateless': {remedy}"]
