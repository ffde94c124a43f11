"""Successive halving with engines of known speed: who goes on, on which prompts, and when it ends."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from benchcheck.engines import Bench, candidate

from specdec_cli.tune.candidate import PLAIN, Candidate
from specdec_cli.tune.choice import Choice, choice_of
from specdec_cli.tune.halving import FEWEST_GROUPS, FEWEST_TOKENS, Halving

SPEEDUPS = {f"m{number}": 0.5 + 0.1 * number for number in range(18)}
"""The fastest is m17, at 2.2 times plain decoding."""


def found(halving: Halving) -> Choice:
    choice = choice_of(halving, [])
    assert choice is not None
    return choice


def test_the_fastest_wins_and_a_third_goes_on() -> None:
    bench = Bench(SPEEDUPS)
    halving = bench.halving([candidate(name) for name in SPEEDUPS])
    halving.run()
    assert [len(stage.candidates) - 1 for stage in halving.stages] == [18, 6, 3]
    assert halving.stages[-1].number == halving.num_stages == 3
    choice = found(halving)
    assert choice.config == {"method": "m17", "num_speculative_tokens": 4}
    assert choice.fastest is not None
    assert choice.fastest.speedup == pytest.approx((2.2, 2.2, 2.2))
    assert [entry.candidate.name for entry in choice.tried[:3]] == ["m17", "m16", "m15"]
    assert {entry.candidate.name for entry in choice.tried} == set(SPEEDUPS)
    assert choice.reasons()[0].startswith("Use m17: it generates 2.20 [2.20, 2.20] times as many tokens")


def test_everybody_answers_the_same_prompts_and_plain_decoding_takes_part() -> None:
    bench = Bench(SPEEDUPS)
    halving = bench.halving([candidate(name) for name in SPEEDUPS])
    halving.run()
    for stage in halving.stages:
        assert stage.candidates[0] is PLAIN
        assert {len(stage.turns[one.name]) for one in stage.candidates} == {stage.num_groups}
    first = bench.answers[:19]
    assert {name for name, *_ in first} == {PLAIN.name, *SPEEDUPS}
    assert len({prompts for _, prompts, *_ in first}) == 1
    orders = [[name for name, *_ in bench.answers[start : start + 19]] for start in (0, 19)]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1])


@pytest.mark.parametrize("num_prompts", [1, 2, 5, 20])
def test_no_engine_sees_a_prompt_twice(num_prompts: int) -> None:
    bench = Bench(SPEEDUPS)
    halving = bench.halving([candidate(name) for name in SPEEDUPS], num_prompts=num_prompts)
    halving.run()
    assert halving.stages[-1].num_groups >= FEWEST_GROUPS


def test_combinations_join_in_the_second_stage_given_the_best_single_methods() -> None:
    bench = Bench(SPEEDUPS | {"both": 3.0})
    given: list[str] = []

    def combined(ranked: Sequence[Candidate]) -> list[Candidate]:
        given.extend(one.name for one in ranked)
        return [candidate("both", kind="several")]

    halving = bench.halving([candidate(name) for name in SPEEDUPS], combined)
    halving.run()
    assert given == sorted(SPEEDUPS, key=SPEEDUPS.__getitem__, reverse=True)
    assert "both" not in halving.stages[0].turns
    assert "both" in halving.stages[1].turns
    fastest = found(halving).fastest
    assert fastest is not None
    assert fastest.candidate.name == "both"


@pytest.mark.parametrize(("seconds", "making_s"), [(30.0, 0.1), (120.0, 1.0), (600.0, 4.0)])
def test_it_ends_in_time_and_uses_most_of_it(seconds: float, making_s: float) -> None:
    bench = Bench(SPEEDUPS, making_s)
    bench.halving([candidate(name) for name in SPEEDUPS], seconds=seconds, num_prompts=200).run()
    assert 0.7 * seconds < bench.now < 1.1 * seconds


def test_texts_are_shorter_where_time_is_short_but_not_in_the_last_stage() -> None:
    bench = Bench(SPEEDUPS)
    halving = bench.halving([candidate(name) for name in SPEEDUPS], seconds=120.0, max_tokens=400)
    halving.run()
    assert FEWEST_TOKENS <= halving.stages[0].max_tokens < 400
    assert halving.stages[-1].max_tokens == 400
    assert halving.stages[0].num_groups >= FEWEST_GROUPS - 1


def test_without_time_to_make_engines_the_rest_is_left_out_and_said() -> None:
    bench = Bench(SPEEDUPS, making_s=10.0)
    halving = bench.halving([candidate(name) for name in reversed(SPEEDUPS)], seconds=120.0)
    halving.run()
    late = {one.name: reason for one, reason in halving.stages[0].left_out}
    assert 0 < len(late) < len(SPEEDUPS)
    assert set(late.values()) == {"there was no time to try it: give more --minutes"}
    assert found(halving).config == {"method": "m17", "num_speculative_tokens": 4}
    assert bench.now < 150


def test_one_candidate_is_tried_however_long_plain_decoding_took() -> None:
    bench = Bench({"m1": 1.5, "m2": 2.0}, making_s=20.0)
    halving = bench.halving([candidate("bad"), candidate("m1"), candidate("m2")], seconds=12.0)
    halving.run()
    assert [entry.candidate.name for entry in found(halving).tried] == ["m1"]


def test_who_has_no_engine_is_left_out_with_the_reason() -> None:
    bench = Bench({"good": 1.5})
    halving = bench.halving([candidate("bad"), candidate("good"), candidate("bad k=2", engine="bad")])
    halving.run()
    assert [(one.name, reason) for one, reason in halving.stages[0].left_out] == [
        ("bad", "ValueError: bad does not work"),
        ("bad k=2", "ValueError: bad does not work"),
    ]
    assert [entry.candidate.name for entry in found(halving).tried] == ["good"]


def test_forms_share_an_engine_until_the_last_stage() -> None:
    names = [f"deep k={k}" for k in range(1, 6)]
    bench = Bench({name: 1.0 + 0.1 * place for place, name in enumerate(names)})
    members = [candidate(name, k, "model", names[-1]) for k, name in enumerate(names[:-1], 1)]
    halving = bench.halving([*members, candidate(names[-1], 5, "model")])
    halving.run()
    before, last = halving.stages
    assert {one.name for one in before.candidates} == {PLAIN.name, *names}
    first_own = next(place for place, name in enumerate(bench.made) if name in names[:-1])
    assert set(bench.made[:first_own]) == {PLAIN.name, names[-1]}
    asked = [(name, lower) for name, _, _, lower in bench.answers]
    assert {lower for name, lower in asked if name == names[-1]} == {None, 1, 2, 3, 4}
    assert {one.name for one in last.candidates} <= {name for name, lower in asked if lower is None}


def test_a_candidate_that_cannot_be_faster_is_left_out_before_it_answers() -> None:
    bench = Bench({"slow": 0.01, "good": 1.5, "unlucky": 2.0})
    bench.slow_steps |= {"slow", "unlucky"}
    bench.slow_once.add("unlucky")
    halving = bench.halving([candidate("slow", 4), candidate("good"), candidate("unlucky")])
    halving.run()
    fastest = found(halving).fastest
    assert fastest is not None
    assert fastest.candidate.name == "unlucky", "its steps were slow when they were first measured"
    ((one, reason),) = halving.stages[0].left_out
    assert one.name == "slow"
    assert reason == "a step takes 100 times as long as a plain one, and brings 5 tokens at most"
    assert "slow" not in {name for name, *_ in bench.answers}


@pytest.mark.parametrize("is_exact", [True, False])
def test_a_text_that_differs_is_an_error_where_rounding_is_none(is_exact: bool) -> None:
    bench = Bench({"wrong": 3.0, "good": 1.5})
    bench.other_texts.add("wrong")
    halving = bench.halving([candidate("wrong"), candidate("good")], is_exact=is_exact)
    halving.run()
    fastest = found(halving).fastest
    assert fastest is not None
    assert fastest.candidate.name == ("good" if is_exact else "wrong")
    reasons = [reason for stage in halving.stages for _, reason in stage.left_out]
    assert reasons == (["its text is not that of plain decoding"] if is_exact else [])


def test_a_candidate_that_fails_later_is_out_and_the_others_go_on() -> None:
    bench = Bench(SPEEDUPS)

    def fail(name: str) -> None:
        if name == "m17" and len(bench.answers) > 30:
            raise RuntimeError("out of memory")

    bench.before_answer = fail
    halving = bench.halving([candidate(name) for name in SPEEDUPS])
    halving.run()
    choice = found(halving)
    assert choice.config == {"method": "m16", "num_speculative_tokens": 4}
    assert "m17" not in {entry.candidate.name for entry in choice.tried}
    reasons = {one.name: reason for stage in halving.stages for one, reason in stage.left_out}
    assert reasons == {"m17": "RuntimeError: out of memory"}


@pytest.mark.parametrize(("num_answers", "stage"), [(5, 0), (25, 1), (160, 2), (260, 3)])
def test_an_interruption_leaves_the_best_so_far(num_answers: int, stage: int) -> None:
    bench = Bench(SPEEDUPS)

    def interrupt(_: str) -> None:
        if len(bench.answers) == num_answers:
            raise KeyboardInterrupt

    bench.before_answer = interrupt
    halving = bench.halving([candidate(name) for name in SPEEDUPS], num_prompts=200)
    with pytest.raises(KeyboardInterrupt):
        halving.run()
    choice = choice_of(halving, [])
    if not stage:
        assert choice is None
        return
    assert choice is not None
    assert choice.fastest is not None
    assert choice.fastest.candidate.name == "m17"
    assert choice.stage.number == stage
    ratio_text = choice.reasons()[-1].startswith(f"The search ended in stage {stage} of ")
    assert ratio_text == (stage < 3)


def test_plain_decoding_may_be_best() -> None:
    bench = Bench({"a": 0.9, "b": 0.8})
    halving = bench.halving([candidate("a"), candidate("b")])
    halving.run()
    choice = found(halving)
    assert choice.config is None
    assert choice.reasons() == [
        "No speculation is best: the fastest of all, a, generates 0.90 [0.90, 0.90] times as many tokens per second as plain "
        "decoding.",
        "Next: b 0.80 [0.80, 0.80] times.",
    ]


def test_a_gain_that_may_be_chance_is_not_used() -> None:
    bench = Bench({"a": 1.1})
    halving = bench.halving([candidate("a")])
    factors = iter([0.8, 1.6, 0.8, 0.8, 1.6, 1.1] * 100)
    bench.before_answer = lambda name: bench.speedups.update({name: next(factors)} if name == "a" else {})
    halving.run()
    choice = found(halving)
    assert choice.fastest is not None
    value, low, high = choice.fastest.speedup
    assert low <= 1.0 < value < high
    assert choice.config is None
    bounds = f"[{low:.2f}, {high:.2f}]"
    assert choice.reasons() == [
        f"Use no speculation: a was the fastest, with no difference shown {bounds} beside plain decoding; more prompts or "
        "minutes would tell."
    ]


def test_without_any_method_no_speculation_is_best() -> None:
    bench = Bench({})
    halving = bench.halving([candidate("bad")])
    halving.run()
    choice = found(halving)
    assert choice.config is None
    assert choice.reasons() == ["No speculation is best: no method could be used."]


def test_a_batch_is_full_in_every_group() -> None:
    bench = Bench({"a": 1.2, "b": 1.1})
    halving = bench.halving([candidate("a"), candidate("b")], num_prompts=22, batch_size=4)
    halving.run()
    assert {len(prompts) for _, prompts, *_ in bench.answers} == {4}
