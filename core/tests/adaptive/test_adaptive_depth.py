"""Drafts are as long as they pay, rest where they do not, and come back."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pytest

from specdec import SamplingParams
from specdec.adaptive import AdaptiveDepth, MeasuredStep
from specdec.engine.sequence import Sequence


@dataclass
class World:
    """What steps cost, in seconds, and how often a drafted token is accepted if all before it are."""

    plain: float = 1e-3
    node: float = 0.1e-3
    depth: float = 0.1e-3
    call: float = 0.05e-3
    rates: tuple[float, ...] = (0.6,)
    """One for each sequence, the last one for all further."""
    spread: float = 0.2
    """Largest relative error of a time."""
    is_found: float = 1.0
    """Share of steps in which there is a draft at all."""
    asked: float = 0.0
    """What the rest of a step takes more where a draft was wanted and none was found."""
    num_prompt_rows: int | None = 0
    """Tokens of prompts in every step, each as dear as a node; None where some requests do not sample."""
    first_plain: float = 1.0
    """Factor on the time of a step without drafts whose predecessor had drafts."""
    chance: random.Random = field(default_factory=lambda: random.Random(7))

    def seconds(self, value: float) -> float:
        return value * (1 + self.spread * self.chance.uniform(-1, 1))

    def speed(self, depth: int, rate: float) -> float:
        """Expected tokens a second of one request at a depth."""
        if depth == 0:
            return 1 / self.plain
        tokens = 1 + sum(rate**place for place in range(1, depth + 1)) * self.is_found
        propose = self.call + self.depth * depth
        return tokens / (self.plain + self.node * depth * self.is_found + propose)


def opened(k: int, *, can_shorten: bool) -> AdaptiveDepth:
    return AdaptiveDepth(k, can_shorten=can_shorten)


def make_sequences(count: int) -> list[Sequence]:
    prompt = np.array([1], np.int32)
    return [
        Sequence(str(i), prompt, SamplingParams(), seed=0, sample_index=0, max_num_tokens=10)
        for i in range(count)
    ]


def run(
    adaptive: AdaptiveDepth, world: World, num_steps: int, k: int, sequences: list[Sequence]
) -> tuple[list[int], float, list[list[int]]]:
    """Run steps; returns the depth of each, tokens a second, and the limits of each."""
    depths, every, tokens, total = [], [], 0, 0.0
    for _ in range(num_steps):
        adaptive.begin(sequences, k)
        limits = [adaptive.limit(sequence, k) for sequence in sequences]
        drafted, accepted = [], []
        for index, limit in enumerate(limits):
            count = limit if world.chance.random() < world.is_found else 0
            rate = world.rates[min(index, len(world.rates) - 1)]
            stood = 0
            while stood < count and world.chance.random() < rate:
                stood += 1
            drafted.append(count)
            accepted.append(stood)
        propose = 0.0 if adaptive.is_suspended else world.seconds(world.call + world.depth * max(limits))
        other = world.seconds(world.plain + world.node * sum(drafted))
        if not adaptive.is_suspended and not any(drafted):
            other += world.asked
        if adaptive.is_suspended and depths and depths[-1]:
            other *= world.first_plain
        num_prompt_rows = world.num_prompt_rows or 0
        adaptive.observe(
            MeasuredStep(
                sequences,
                limits,
                drafted,
                accepted,
                propose,
                other + world.node * num_prompt_rows,
                num_prompt_rows=world.num_prompt_rows,
                num_rows=len(sequences) + sum(drafted) + num_prompt_rows,
            )
        )
        depths.append(max(limits))
        every.append(limits)
        tokens += len(sequences) + sum(accepted)
        total += propose + other
    return depths, tokens / total, every


@pytest.mark.parametrize("rate", [0.3, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("node", [0.01e-3, 0.1e-3, 0.4e-3])
@pytest.mark.parametrize("depth", [0.0, 0.1e-3, 0.4e-3])
@pytest.mark.sampled(10, slow=14)
def test_one_request_is_nearly_as_fast_as_its_best_depth_allows(rate, node, depth):
    k = 12
    world = World(node=node, depth=depth, rates=(rate,))
    adaptive = opened(k, can_shorten=True)
    sequences = make_sequences(1)
    run(adaptive, world, 300, k, sequences)
    _, speed, _ = run(adaptive, world, 2000, k, sequences)
    best = max(world.speed(d, rate) for d in range(k + 1))
    assert speed > 0.9 * best
    assert speed > 0.96 / world.plain


def test_drafts_that_never_stand_cost_little_from_the_start():
    world, adaptive = World(rates=(0.0,), depth=1e-3), opened(8, can_shorten=True)
    depths, speed, _ = run(adaptive, world, 1000, 8, make_sequences(1))
    assert speed > 0.9 / world.plain
    assert sum(depth > 0 for depth in depths) < 50


def test_what_a_proposer_costs_where_it_finds_nothing_counts():
    world = World(node=0.05e-3, depth=0.0, call=0.02e-3, is_found=0.15, asked=0.3e-3)
    assert world.speed(4, 0.6) * world.plain > 1.1, "what is drafted pays"
    adaptive, sequences = opened(4, can_shorten=True), make_sequences(1)
    run(adaptive, world, 300, 4, sequences)
    depths, speed, _ = run(adaptive, world, 2000, 4, sequences)
    assert speed > 0.97 / world.plain
    assert sum(depth > 0 for depth in depths) < 300
    world.asked = 0.0
    run(adaptive, world, 1500, 4, sequences)
    assert run(adaptive, world, 1000, 4, sequences)[1] > 1.05 / world.plain


def test_a_rest_ends_when_drafts_are_worth_it_again():
    world, adaptive, sequences = World(rates=(0.05,)), opened(4, can_shorten=True), make_sequences(1)
    depths, _, _ = run(adaptive, world, 1000, 4, sequences)
    assert sum(depth > 0 for depth in depths[500:]) < 25
    world.rates = (0.9,)
    depths, _, _ = run(adaptive, world, 1500, 4, sequences)
    assert sum(depth == 4 for depth in depths[-500:]) > 450


def test_drafting_stops_when_it_is_worth_it_no_more():
    world, adaptive, sequences = (
        World(rates=(0.9,), depth=0.4e-3),
        opened(4, can_shorten=True),
        make_sequences(1),
    )
    run(adaptive, world, 1000, 4, sequences)
    world.rates = (0.05,)
    depths, _, _ = run(adaptive, world, 600, 4, sequences)
    assert sum(depth > 0 for depth in depths[300:]) < 30


def test_the_first_step_without_drafts_is_not_measured():
    """Caches are then warm for drafting; measured, it would make plain steps look three times as dear."""
    world = World(rates=(0.9,), first_plain=3.0, spread=0.0)
    adaptive, sequences = opened(4, can_shorten=True), make_sequences(1)
    depths, _, _ = run(adaptive, world, 2000, 4, sequences)
    pauses = [len(rest) for rest in "".join("-" if depth else "0" for depth in depths).split("-") if rest]
    assert pauses[0] == 4, "one that is not measured, then three"
    assert len(pauses) > 6
    assert set(pauses[1:]) == {2}, "one that is not measured, then one"
    world.rates = (0.2,)  # 0.8 times as fast as without drafts, and 2.4 times were they so dear
    depths, _, _ = run(adaptive, world, 1000, 4, sequences)
    assert sum(depth > 0 for depth in depths[500:]) < 50


def test_of_a_batch_those_are_shortened_whose_drafts_do_not_stand():
    world = World(rates=(0.9, 0.9, 0.9, 0.05), node=0.05e-3, depth=0.05e-3)
    adaptive, sequences = opened(6, can_shorten=True), make_sequences(4)
    _, _, every = run(adaptive, world, 1500, 6, sequences)
    late = np.array(every[-500:]).mean(0)
    assert late[3] < 0.5 * late[:3].min()
    assert late[:3].min() > 3


def test_batch_sizes_are_judged_apart():
    world, adaptive = World(rates=(0.5,), depth=0.05e-3), opened(4, can_shorten=True)
    one, many = make_sequences(1), make_sequences(16)
    world.node = 0.05e-3
    run(adaptive, world, 200, 4, one)
    world.node = 1e-3  # each row costs as much as a step
    run(adaptive, world, 400, 4, many)
    depths_of_many, _, _ = run(adaptive, world, 200, 4, many)
    world.node = 0.05e-3
    depths_of_one, _, _ = run(adaptive, world, 200, 4, one)
    assert sum(depth > 0 for depth in depths_of_many) < 20
    assert sum(depth > 0 for depth in depths_of_one) > 180


def test_trees_are_drafted_whole_or_not_at_all():
    world, adaptive, sequences = World(rates=(0.5,)), opened(9, can_shorten=False), make_sequences(2)
    _, _, every = run(adaptive, world, 500, 9, sequences)
    assert {limit for limits in every for limit in limits} <= {0, 9}


def test_proposers_that_often_find_nothing_are_not_left_out_for_it():
    world = World(rates=(0.8,), is_found=0.2, depth=0.0, call=0.01e-3)
    adaptive, sequences = opened(5, can_shorten=True), make_sequences(1)
    run(adaptive, world, 300, 5, sequences)
    depths, speed, _ = run(adaptive, world, 2000, 5, sequences)
    assert sum(depth == 0 for depth in depths) < 200
    assert speed > 0.95 * max(world.speed(d, 0.8) for d in range(6))


def test_nothing_is_decided_where_the_configuration_allows_no_drafts():
    adaptive, sequences = opened(4, can_shorten=True), make_sequences(3)
    for _ in range(50):
        adaptive.begin(sequences, 0)
        assert adaptive.limit(sequences[0], 0) == 0
        assert not adaptive.is_suspended
        adaptive.observe(
            MeasuredStep(sequences, [0] * 3, [0] * 3, [0] * 3, 1e-3, 1e-3, num_prompt_rows=0, num_rows=3)
        )
    adaptive.begin([], 4)
    assert adaptive.limit(sequences[0], 4) == 4


def test_steps_that_could_not_draft_are_no_rests():
    world, adaptive, sequences = (
        World(rates=(0.0,), depth=1e-3),
        opened(4, can_shorten=True),
        make_sequences(2),
    )
    depths, _, _ = run(adaptive, world, 300, 4, sequences)
    assert sum(depth == 0 for depth in depths) > 200
    for _ in range(100):  # as of requests with speculative=False, or one token before their end
        adaptive.begin(sequences, 4)
        limits = [adaptive.limit(sequence, 0) for sequence in sequences]
        adaptive.observe(
            MeasuredStep(sequences, limits, [0, 0], [0, 0], 0.0, 1e-3, num_prompt_rows=0, num_rows=2)
        )
    depths, _, _ = run(adaptive, world, 300, 4, sequences)
    assert sum(depth > 0 for depth in depths) < 30


def test_one_odd_step_decides_nothing():
    world, adaptive, sequences = (
        World(rates=(0.9,), spread=0.0),
        opened(4, can_shorten=True),
        make_sequences(1),
    )
    run(adaptive, world, 200, 4, sequences)
    adaptive.begin(sequences, 4)
    depth = adaptive.limit(sequences[0], 4)
    adaptive.observe(
        MeasuredStep(sequences, [depth], [depth], [depth], 0.5, 0.5, num_prompt_rows=0, num_rows=1 + depth)
    )
    depths, _, _ = run(adaptive, world, 60, 4, sequences)
    assert sum(depth == 0 for depth in depths) <= 2


def test_one_slow_call_in_a_step_with_prompts_decides_nothing():
    world, adaptive, sequences = World(rates=(0.9,)), opened(4, can_shorten=True), make_sequences(1)
    run(adaptive, world, 200, 4, sequences)
    adaptive.begin(sequences, 4)
    depth = adaptive.limit(sequences[0], 4)
    something_is_compiled_s = 3.0
    adaptive.observe(
        MeasuredStep(
            sequences,
            [depth],
            [depth],
            [depth],
            something_is_compiled_s,
            20e-3,
            num_prompt_rows=None,
            num_rows=100,
        )
    )
    depths, _, _ = run(adaptive, world, 200, 4, sequences)
    assert sum(depth == 0 for depth in depths) <= 6


def test_what_prompts_cost_the_proposer_counts():
    world, adaptive, sequences = (
        World(rates=(0.6,), node=0.01e-3),
        opened(4, can_shorten=True),
        make_sequences(1),
    )
    late: list[int] = []
    for turn in range(100):
        adaptive.begin(sequences, 4)
        depth = adaptive.limit(sequences[0], 4)
        propose_s = 0.0 if adaptive.is_suspended else 30e-3
        adaptive.observe(
            MeasuredStep(
                sequences, [depth], [depth], [0], propose_s, 40e-3, num_prompt_rows=None, num_rows=100
            )
        )
        depths, _, _ = run(
            adaptive, world, 10, 4, sequences
        )  # ten steps bring ten tokens more, a prompt costs 30 ms
        late += depths if turn > 50 else []
    assert sum(depth == 0 for depth in late) > 0.8 * len(late)


def test_where_prompts_come_all_the_time_drafts_are_made():
    adaptive = opened(4, can_shorten=True)
    depths, _, _ = run(adaptive, World(rates=(0.9,), num_prompt_rows=None), 1000, 4, make_sequences(3))
    assert sum(depth == 4 for depth in depths) > 900


@pytest.mark.parametrize(
    ("rate", "node", "pays"),
    [(0.05, 0.1e-3, False), (0.9, 0.1e-3, True), (0.25, 0.001e-3, True), (0.85, 0.3e-3, False)],
)
def test_a_few_tokens_of_prompts_in_every_step_hide_nothing(rate, node, pays):
    adaptive = opened(4, can_shorten=True)
    world = World(rates=(rate,), node=node, depth=0.02e-3, num_prompt_rows=1)
    depths, _, _ = run(adaptive, world, 1000, 4, make_sequences(3))
    assert sum((depth > 0) == pays for depth in depths) > 800


@pytest.mark.parametrize("depth", [0.0, 0.2e-3])
def test_short_requests_of_two_kinds_are_told_apart(depth):
    world, adaptive = World(node=0.1e-3, depth=depth), opened(4, can_shorten=True)
    speeds: dict[float, list[float]] = {0.9: [], 0.05: []}
    for number in range(60):
        rate = 0.9 if number % 2 else 0.05
        world.rates = (rate,)
        _, speed, _ = run(adaptive, world, 50, 4, make_sequences(1))
        if number >= 20:
            speeds[rate].append(speed)
    good, bad = (sum(found) / len(found) for found in speeds.values())
    assert good > 0.85 * max(world.speed(d, 0.9) for d in range(5))
    assert bad > 0.85 * max(world.speed(d, 0.05) for d in range(5))


def test_a_draft_counts_though_the_next_step_is_planned_without_any() -> None:
    """A step may be planned before the one before it is measured."""
    adaptive, [sequence] = opened(4, can_shorten=False), make_sequences(1)
    for is_planned in (False, True):
        adaptive.begin([sequence], 4)
        limit = adaptive.limit(sequence, 4)
        before = adaptive._acceptance_of(sequence)._accepted
        adaptive._depth = 0 if is_planned else limit
        adaptive.observe(MeasuredStep([sequence], [limit], [limit], [2], 1e-4, 1e-3, 0, 5))
        assert adaptive._acceptance_of(sequence)._accepted > before
