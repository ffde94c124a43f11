"""When steps are launched before the proposer has seen the last tokens."""

from __future__ import annotations

from typing import Any

import pytest
from speccheck.engines import make_llm, proposer_of, scripted
from speccheck.models import prompts, tiny

from specdec import SamplingParams
from specdec.engine.late_looks import LateLooks
from specdec.engine.step import Row, Step


def step(
    *,
    nodes: int = 0,
    most: int = 5,
    seconds: float = 0.0,
    size: int = 1,
    asking: float = 0.0,
    is_late: bool = False,
) -> Step:
    """Return a step of requests that decode; only the first has a draft."""
    nobody: Any = None
    found = Step([Row(nobody, 9, 10, most, 1, True) for _ in range(size)], is_late=is_late)
    found.rows[0].draft(range(nodes))
    found.propose_s, found.score_s = asking, seconds - asking
    return found


def observed(looks: LateLooks, each: Step, num_accepted: int = 0) -> bool:
    each.rows[0].accepted = range(num_accepted)
    return looks.observe(each)


def late(looks: LateLooks, seconds: float, size: int = 1) -> None:
    """Observe a late step."""
    observed(looks, step(most=0, seconds=seconds, size=size, is_late=True))


def measured(in_time_s: float, late_s: float, *, found: int, num_accepted: int, size: int = 1) -> LateLooks:
    """Return the decisions after 20 steps without drafts of each kind, and then `found` drafts in 20 looks."""
    looks: Any = LateLooks(None)  # type: ignore[arg-type]  # nothing is asked
    for _ in range(20):
        observed(looks, step(seconds=in_time_s, size=size))
        late(looks, late_s, size)
    for count in range(20):
        observed(looks, step(seconds=in_time_s, size=size))  # it had nothing
        has_nodes = count < found
        observed(looks, step(nodes=5 * has_nodes, seconds=in_time_s, size=size), num_accepted)
        late(looks, late_s, size)
    return looks


@pytest.mark.parametrize(
    ("in_time_s", "late_s", "found", "num_accepted", "size", "pays"),
    [
        (2.0, 1.2, 0, 0, 1, True),
        (1.2, 1.2, 0, 0, 1, False),  # where nothing runs beside the host
        (2.0, 1.2, 20, 1, 1, True),  # half a token of 1.2 s is less than 0.8 s
        (5.2, 4.7, 20, 3, 1, False),  # three quarters of one of 4.7 s are more than 0.5 s
        (5.2, 4.7, 1, 3, 1, True),  # but not once in twenty
        (5.2, 4.7, 20, 3, 8, True),  # nor if seven others gain
    ],
)
def test_what_it_saves_is_weighed_against_the_token_that_it_costs(
    in_time_s: float, late_s: float, found: int, num_accepted: int, size: int, pays: bool
) -> None:
    looks = measured(in_time_s, late_s, found=found, num_accepted=num_accepted, size=size)
    decisions = [looks.pays(step(size=size)) for _ in range(63)]
    assert decisions == [pays] * 63
    assert looks.pays(step(size=size)) != pays, "one in 64 measures the other kind"


def test_both_kinds_are_measured_first() -> None:
    looks: Any = LateLooks(None)  # type: ignore[arg-type]
    for _ in range(3):
        observed(looks, step(seconds=9.0))  # warms up
    for _ in range(4):
        assert looks.pays(step())
        late(looks, 1.0)
    for _ in range(4):
        assert not looks.pays(step())
        observed(looks, step(seconds=2.0))
    assert looks.pays(step())


def test_steps_with_prompts_and_resting_ones_are_not_counted() -> None:
    looks: Any = LateLooks(None)  # type: ignore[arg-type]
    for _ in range(3):
        observed(looks, step())
    prompt = step(seconds=9.0)
    prompt.rows[0].chunk = 40
    assert not looks.observe(prompt)
    assert not looks.observe(step(most=0, seconds=9.0))
    assert looks.observe(step(seconds=2.0))
    assert looks._of(step()).in_time_s.value == 2.0


def test_a_proposer_that_takes_its_time_is_left_to_adaptive() -> None:
    """Which may stop asking it, and so has to see that it finds nothing."""
    looks: Any = LateLooks(None)  # type: ignore[arg-type]
    for _ in range(5):
        seen = looks.observe(step(seconds=2.0, asking=0.5))
    assert not seen
    assert not looks.pays(step())
    for _ in range(300):
        looks.observe(step(seconds=2.0, asking=0.1))
    assert looks.observe(step(seconds=2.0, asking=0.1))
    assert looks.pays(step())


def test_adaptive_stops_asking_a_slow_proposer_that_finds_nothing() -> None:
    config = scripted("Scripted", 3, finds=0.0, sleep_s=0.01, adaptive=True)
    llm = make_llm(
        tiny("llama"), config, max_model_len=160, num_gpu_blocks_override=100, async_scheduling=True
    )
    params = SamplingParams(temperature=0.0, max_tokens=100, ignore_eos=True)
    for _ in range(2):
        before = proposer_of(llm).num_calls
        llm.generate(prompts([9], seed=1), params)
    assert proposer_of(llm).num_calls - before < 20
