"""A proposer in vLLM's runner: the same texts, everything delivered, nothing it does wrong reaches the engine."""

from __future__ import annotations

import pytest
import torch
from speccheck.hosting import HIDDEN
from speccheck.malformed import MALFORMED
from stub_engine import StubParams, StubRunner
from support import PROMPTS, add_all, bound, counted, known, proposer_of, stock_texts

from specdec import ConfigError, FinishReason


def check_delivered(binding, texts: dict[str, list[int]], reason=FinishReason.LENGTH) -> None:
    proposer = proposer_of(binding)
    assert proposer.complaints == []
    assert proposer.held == {}
    ended = [(name, tokens) for name, why, tokens in proposer.finished if why is reason]
    assert sorted(ended) == sorted(texts.items())


@pytest.mark.parametrize("piece", [1000, 7])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("wrong", [0.0, 0.4])
def test_texts_are_those_without_drafts(temperature, wrong, piece) -> None:
    texts = stock_texts(temperature, piece=piece)
    runner, binding = bound(known(texts, wrong=wrong), piece=piece)
    add_all(runner, temperature)
    assert runner.run() == texts
    check_delivered(binding, texts)
    assert counted(binding, "num_accepted_tokens") > 20
    assert counted(binding, "num_draft_tokens") >= counted(binding, "num_accepted_tokens")
    assert counted(binding, "adapter_failures") == 0


def test_fewer_steps_are_needed() -> None:
    texts = stock_texts()
    plain, (drafted, _) = StubRunner(), bound(known(texts))
    for runner in (plain, drafted):
        add_all(runner)
        runner.run()
    assert drafted.num_steps < plain.num_steps / 2


@pytest.mark.parametrize("piece", [1000, 7])
@pytest.mark.parametrize("wrong", [0.0, 0.4])
def test_tokens_come_with_the_states_that_chose_them(wrong, piece) -> None:
    texts = stock_texts(0.8, piece=piece)
    runner, binding = bound(known(texts, "ChainHiddenRecorder", wrong=wrong), piece=piece)
    assert runner.use_aux_hidden_state_outputs
    assert runner.model.aux_layers == (0, 1)
    add_all(runner, 0.8)
    assert runner.run() == texts
    check_delivered(binding, texts)
    for name, text in texts.items():
        _, states, _ = proposer_of(binding).final[name]
        assert len(states) == len(text)
        for position, row in enumerate(states):
            for kind, got in enumerate(row):
                want = position + 1000.0 * kind if position else 0.0
                assert torch.equal(got, torch.full((HIDDEN,), float(want))), f"{name} at {position}"


def test_states_that_vllms_model_does_not_return_are_named(monkeypatch) -> None:
    runner, _ = bound(known(stock_texts(), "ChainHiddenRecorder"))
    monkeypatch.setattr(runner.model, "aux_layers", (0,))
    add_all(runner)
    with pytest.raises(
        ConfigError, match=r"reads the auxiliary states \[0, 1\], and vLLM's model returns 1 of them"
    ):
        runner.run()


@pytest.mark.parametrize("kind", MALFORMED)
def test_hostile_proposers_change_nothing(kind) -> None:
    texts = stock_texts(0.8)
    runner, binding = bound(known(texts, malformed_every=2, kinds=(kind,)))
    add_all(runner, 0.8)
    assert runner.run() == texts
    assert proposer_of(binding).num_malformed > 0
    assert proposer_of(binding).held == {}


@pytest.mark.time_budget
@pytest.mark.parametrize("keys", [{"fails_every": 1}, {"sleep_s": 0.06, "wrong": 0.9}])
def test_failing_and_slow_proposers_are_left_out(keys) -> None:
    texts = stock_texts(max_tokens=40)
    runner, binding = bound(known(texts, **keys))
    add_all(runner, max_tokens=40)
    assert runner.run() == texts
    assert counted(binding, "proposer_pauses") == 1


def test_errors_are_raised_where_that_is_asked_for() -> None:
    runner, _ = bound(known({}, fails_every=1, on_proposer_error="raise"))
    add_all(runner)
    with pytest.raises(RuntimeError, match="call 1 fails"):
        runner.run()


def test_a_failure_of_the_adapter_costs_drafts_alone(monkeypatch) -> None:
    texts = stock_texts()
    runner, binding = bound(known(texts))
    commit, calls = binding._hosted.commit, []

    def fail(*arguments, **keys) -> None:
        calls.append(1)
        if len(calls) == 3:
            raise KeyError("vLLM has changed")
        commit(*arguments, **keys)

    monkeypatch.setattr(binding._hosted, "commit", fail)
    add_all(runner)
    assert runner.run() == texts
    assert counted(binding, "adapter_failures") == 1
    assert counted(binding, "num_accepted_tokens") > 20


def test_other_ranks_draft_nothing_and_say_the_same() -> None:
    texts = stock_texts(0.8)
    runner, _ = bound(known(texts), is_drafting=False)
    add_all(runner, 0.8)
    runner.step()
    assert all(state.draft == [] for state in runner.requests.values())
    runner.requests["r0"].draft = texts["r0"][len(runner.texts["r0"]) :][
        :3
    ]  # as the first rank would have it
    assert runner.run() == texts


def test_limits_come_with_the_request() -> None:
    texts = stock_texts()
    runner, _ = bound(known(texts))
    for index, prompt in enumerate(PROMPTS):
        extra = {"specdec_num_speculative_tokens": index} if index < 3 else {"specdec_nonsense": 1}
        runner.add(f"r{index}", prompt, StubParams(extra_args=extra))
    runner.step()
    lengths = [len(state.draft) for state in runner.requests.values()]
    assert lengths[0] == 0
    assert lengths[1] <= 1
    assert lengths[2] <= 2
    assert runner.run() == texts


def test_how_requests_end_is_told() -> None:
    texts = stock_texts()
    stop = texts["r0"][8]
    runner, binding = bound(known(texts))
    runner.add("stopped", PROMPTS[0], StubParams(stop_token_ids=(stop,)))
    runner.add("aborted", PROMPTS[1], StubParams())
    runner.add("string", PROMPTS[2], StubParams(stop=("x",)))
    for _ in range(3):
        runner.step()
    runner.abort("aborted")
    runner.abort("string")
    runner.run()
    reasons = {name: reason for name, reason, _ in proposer_of(binding).finished}
    assert reasons == {
        "stopped": FinishReason.STOP, "aborted": FinishReason.ABORT, "string": FinishReason.STOP,
    }  # fmt: skip
    told = next(tokens for name, _, tokens in proposer_of(binding).finished if name == "stopped")
    assert told == runner.texts["stopped"]
    assert told[-1] == stop


@pytest.mark.parametrize("name", ["ChainRecorder", "ChainHiddenRecorder"])
def test_preempted_requests_go_on(name) -> None:
    texts = stock_texts()
    runner, binding = bound(known(texts, name, wrong=0.2), piece=16)
    add_all(runner)
    for step in range(6):
        runner.step()
        if step in (2, 4):
            runner.preempt("r2")
    assert runner.run() == texts
    check_delivered(binding, texts)


def test_cached_prefixes_have_no_states() -> None:
    texts = stock_texts()
    for name, drafts in (("ChainRecorder", True), ("ChainHiddenRecorder", False)):
        runner, binding = bound(known(texts, name))
        runner.add("r2", PROMPTS[2], StubParams(), num_cached=16)
        assert runner.run()["r2"] == texts["r2"]
        assert (counted(binding, "num_drafts") > 0) is drafts
        assert counted(binding, "requests_left_out") == (0 if drafts else 1)


def test_the_last_binding_counts() -> None:
    texts = stock_texts()
    runner, first = bound(known({}, "ChainHiddenRecorder"))
    _, second = bound(known(texts))
    second._runner = second._verifier._runner = runner
    second._update_states = type(runner)._update_states.__get__(runner)
    second.attach()
    assert (runner.use_aux_hidden_state_outputs, runner.model.aux_layers) == (False, ())
    add_all(runner)
    assert runner.run() == texts
    assert counted(first, "num_steps") == 0
    assert counted(second, "num_accepted_tokens") > 20
