"""`adaptive` outside of our engine: drafts end where they do not pay in the host, and stay where they do."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
from speccheck.hosting import HIDDEN, drive, state_at, states_of

from specdec import FinishReason, SamplingParams
from specdec.adaptive import MeasuredStep
from specdec_hosting import HostedProposer, HostTarget, open_proposer

VOCAB, LENGTH, K = 128, 1200, 4
PLAIN_S = 10e-3


class Clock:
    """Seconds that pass only where a test says so, but for a little at each look."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        self.now += 20e-6
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("specdec_hosting.hosted.time", made)
    return made


def a_text(seed: int = 3, length: int = LENGTH) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(VOCAB) for _ in range(length)]


def opened(texts: list[list[int]], recorder: str = "ChainRecorder", **keys) -> HostedProposer:
    config = {
        "method": f"speccheck.hosting.{recorder}",
        "num_speculative_tokens": K,
        "texts": tuple(map(tuple, texts)),
        "adaptive": True,
    } | keys
    states = {
        "has_hidden_states": True,
        "has_aux_hidden_states": True,
        "hidden_size": HIDDEN,
        "num_layers": 2,
    }
    host = HostTarget(
        vocab_size=VOCAB,
        max_model_len=LENGTH,
        max_num_seqs=8,
        **(states if recorder == "ChainHiddenRecorder" else {}),
    )
    return open_proposer(config, host, host="this engine")


def run(
    hosted: HostedProposer, clock: Clock, texts: list[list[int]], node_s: float, idle_s: float = 0.0
) -> list[int]:
    """Run texts side by side, one token of a prompt each, in a host whose steps take `PLAIN_S` and `node_s` for each node.

    Returns:
        drafted tokens of each step. Every token was told, at its position.
    """
    names = [f"{id(text)}" for text in texts]
    done = dict.fromkeys(names, 1)
    drafts: dict[str, list[int]] = {name: [] for name in names}
    for name, text in zip(names, texts, strict=True):
        hosted.start(name, text[:1], SamplingParams(temperature=0.0, max_tokens=len(text) - 1))
    counted = []
    while any(done[name] < len(text) for name, text in zip(names, texts, strict=True)):
        counted.append(sum(map(len, drafts.values())))
        clock.now += idle_s + PLAIN_S + node_s * counted[-1]
        running = []
        for name, text in zip(names, texts, strict=True):
            if done[name] == len(text):
                continue
            kept = 0
            while kept < len(drafts[name]) and text[done[name] + kept] == drafts[name][kept]:
                kept += 1
            news = text[done[name] : done[name] + kept + 1]
            hosted.commit(name, news, num_drafted=len(drafts[name]), num_accepted=min(kept, len(news)))
            if hosted.needs_hidden:
                states = states_of(done[name] - 1, kept + 1, 1 + len(hosted.aux_layer_ids))
                hosted.keep_states(name, done[name] - 1, states)
            done[name] += len(news)
            running.append(name)
            drafts[name] = []
        hosted.observe_target(PLAIN_S)
        caps = [
            K * (done[name] < len(text)) for name, text in zip(names, texts, strict=True) if name in running
        ]
        for name, row in zip(running, hosted.propose(running, caps).rows, strict=True):
            drafts[name] = list(row)
    hosted.finish(names, FinishReason.LENGTH)
    return counted


def counts(hosted: HostedProposer) -> dict[str, float]:
    return {metric.name: metric.value for metric in hosted.metrics() if hasattr(metric, "value")}


def check_delivered(hosted: HostedProposer, texts: list[list[int]]) -> None:
    proposer = hosted.proposer
    assert proposer.complaints == []
    assert sorted(tokens for _, _, tokens in proposer.finished) == sorted(texts)


@pytest.mark.parametrize("count", [1, 3])
def test_drafts_that_cost_too_much_are_left_out(clock, count) -> None:
    texts = [a_text(seed) for seed in range(count)]
    hosted = opened(texts, wrong=0.7)
    late = run(hosted, clock, texts, node_s=PLAIN_S)[300:]
    assert sum(1 for drafted in late if drafted) < 0.1 * len(late)
    assert counts(hosted)["specdec:steps_without_drafts"] > 0.8 * len(late)
    check_delivered(hosted, texts)


@pytest.mark.parametrize("count", [1, 3])
def test_drafts_that_pay_stay(clock, count) -> None:
    texts = [a_text(seed) for seed in range(count)]
    steps = {}
    for adaptive in (False, True):
        hosted = opened(texts, wrong=0.05, adaptive=adaptive)
        steps[adaptive] = run(hosted, clock, texts, node_s=0.01 * PLAIN_S)
        check_delivered(hosted, texts)
    assert len(steps[True]) < 1.1 * len(steps[False])


def test_drafts_are_shortened_where_their_ends_do_not_pay(clock) -> None:
    texts = [a_text()]
    hosted = opened(texts, wrong=0.5)
    late = run(hosted, clock, texts, node_s=0.2 * PLAIN_S)[100:-20]
    assert counts(hosted)["specdec:steps_with_shorter_drafts"] > 0.5 * len(late)
    assert 0.5 < sum(late) / len(late) < 0.7 * K


def test_without_adaptive_nothing_is_left_out(clock) -> None:
    texts = [a_text()]
    hosted = opened(texts, wrong=0.7, adaptive=False)
    late = run(hosted, clock, texts, node_s=PLAIN_S)[300:]
    assert sum(1 for drafted in late if drafted) > 0.6 * len(late)
    assert counts(hosted)["specdec:steps_without_drafts"] == 0


def test_states_are_told_though_the_proposer_rests(clock) -> None:
    texts = [a_text()]
    hosted = opened(texts, "ChainHiddenRecorder", wrong=0.7)
    run(hosted, clock, texts, node_s=PLAIN_S)
    assert counts(hosted)["specdec:steps_without_drafts"] > 300
    assert counts(hosted)["vllm:spec_decode_num_drafts"] > 20  # it was tried again: nothing was missing
    (states,) = (held for _, held, _ in hosted.proposer.final.values())
    for position, row in enumerate(states):
        assert row[0][0] == (state_at(position - 1, 0)[0] if position else 0.0)


class Seen:
    """Stands for `AdaptiveDepth` and notes what it is told."""

    is_suspended = False

    def __init__(self) -> None:
        self.steps: list[SimpleNamespace] = []

    def begin(self, sequences, most: int) -> None:
        self.running = [sequence.request_id for sequence in sequences]
        return most

    def limit(self, sequence, most: int) -> int:
        return most

    def observe(self, step: MeasuredStep) -> None:
        told = dict(
            zip(
                [s.request_id for s in step.sequences],
                zip(step.limits, step.num_drafted, step.num_accepted, strict=True),
                strict=True,
            )
        )
        self.steps.append(
            SimpleNamespace(told=told, other_s=step.other_s, prompt=step.num_prompt_rows, rows=step.num_rows)
        )


@pytest.fixture
def seen(clock, monkeypatch) -> tuple[Seen, HostedProposer]:
    adaptive = Seen()
    monkeypatch.setattr("specdec.assembly.opening.AdaptiveDepth", lambda k, can_shorten: adaptive)
    return adaptive, opened([a_text()], wrong=1.0)


def step(hosted: HostedProposer, clock: Clock, seconds: float, **tokens: int) -> None:
    """One step of a host: tokens emitted for each request, 0 in the middle of a prompt, of two wrong drafted tokens each."""
    clock.now += seconds
    for name, count in tokens.items():
        if count:
            hosted.commit(name, [1] * count, num_drafted=2, num_accepted=count - 1)
    hosted.observe_target(seconds)
    hosted.propose(list(tokens), [K if count else 0 for count in tokens.values()])


def test_a_step_lasts_from_one_call_to_the_next_and_idle_time_is_none(seen, clock) -> None:
    adaptive, hosted = seen
    hosted.start("a", [1, 2])
    step(hosted, clock, 0.5, a=1)
    assert adaptive.steps == []  # nothing was asked before it
    step(hosted, clock, 0.25, a=2)
    assert adaptive.steps[0].other_s == pytest.approx(0.25, abs=1e-3)
    assert (adaptive.steps[0].told, adaptive.steps[0].prompt, adaptive.steps[0].rows) == (
        {"a": (K, 2, 1)},
        0,
        3,
    )
    hosted.finish(["a"], FinishReason.STOP)
    hosted.start("b", [1, 2])
    step(hosted, clock, 60.0, b=1)  # a minute without requests
    assert len(adaptive.steps) == 1
    step(hosted, clock, 0.25, b=1)
    assert adaptive.steps[1].told == {"b": (K, 2, 0)}


def test_steps_with_prompts_say_so(seen, clock) -> None:
    adaptive, hosted = seen
    hosted.start("a", [1, 2])
    step(hosted, clock, 0.1, a=1)
    hosted.start("b", [1] * 40)
    step(hosted, clock, 0.1, a=1, b=0)
    assert adaptive.running == ["a", "b"]
    step(hosted, clock, 0.1, a=1, b=0)
    step(hosted, clock, 0.1, a=1, b=1)  # the prompt's last piece: b had no draft that could have been judged
    step(hosted, clock, 0.1, a=1, b=1)
    assert [one.prompt for one in adaptive.steps] == [0, None, 0, 0]
    assert [one.told.get("b") for one in adaptive.steps] == [None, None, (0, 2, 0), (K, 2, 0)]


def test_the_host_says_how_much_of_a_step_was_prompts(seen, clock) -> None:
    adaptive, hosted = seen
    hosted.start("a", [1, 2])
    step(hosted, clock, 0.1, a=1)
    for known, told in [(None, None), (7, 7)]:
        name = f"new{known}"
        hosted.start(name, [1] * 8)
        hosted.commit("a", [1], num_drafted=2)
        hosted.commit(name, [1])
        hosted.observe_target(0.1, num_prompt_rows=known)
        hosted.propose(["a", name], [K, 0])
        assert adaptive.steps[-1].prompt == told
        assert adaptive.steps[-1].rows == (told or 0) + 4
        assert adaptive.running == ["a"]  # the other one has ended


def test_a_failed_call_is_not_counted(clock, monkeypatch) -> None:
    adaptive = Seen()
    monkeypatch.setattr("specdec.assembly.opening.AdaptiveDepth", lambda k, can_shorten: adaptive)
    hosted = opened([a_text()], fails_every=2)
    hosted.start("a", [1, 2])
    for _ in range(6):
        step(hosted, clock, 0.1, a=1)
    assert counts(hosted)["specdec:proposer_errors"] == 3
    assert len(adaptive.steps) == 3  # behind each call that did not fail


def test_a_host_in_pieces_gets_everything(clock) -> None:
    """Prompts in pieces, requests that end at different times, drafts that are often wrong: delivery stays whole."""
    texts = {name: a_text(seed, 60 + 40 * seed) for seed, name in enumerate("abc")}
    hosted = opened(list(texts.values()), wrong=0.5)
    prompts = {"a": 9, "b": 31, "c": 2}
    emitted = drive(hosted, texts, prompts, piece=7)
    assert emitted == {name: text[prompts[name] :] for name, text in texts.items()}
    check_delivered(hosted, list(texts.values()))
