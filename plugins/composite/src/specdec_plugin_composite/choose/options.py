"""The best drafts of a step: the most expected tokens per second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from specdec.engine import StepCosts
from specdec_plugin_composite.offer import Offer
from specdec_plugin_composite.round import Choice, Unseen

_ROUNDS = 4
_LEAST_GAIN = 1.02
"""Throughput of drafts, as a multiple of that without, from which on they are made."""


@dataclass(frozen=True)
class Option:
    """A draft that one row may have."""

    member: int
    gains: Sequence[float]
    """Expected accepted tokens of the first 1, 2, ... nodes."""
    offer: Offer | None
    """None for a draft that is made only if it is chosen."""
    can_shorten: bool = True

    def best(self, price: Sequence[float], depth: int | None = None) -> tuple[float, int]:
        """Return the highest value, and its number of nodes.

        Args:
            price: in tokens, of verifying 0, 1, 2, ... nodes.
            depth: of a draft that is not made yet, if given.
        """
        counts = range(1, len(self.gains) + 1)
        if not self.can_shorten:
            counts = range(len(self.gains), len(self.gains) + 1)
        if depth is not None:
            counts = range(min(depth, len(self.gains)), min(depth, len(self.gains)) + 1)
        best, number = 0.0, 0
        for count in counts:
            value = self.gains[count - 1] - price[count]
            if value > best:
                best, number = value, count
        return best, number


@dataclass(frozen=True)
class Pick:
    """What one row drafts."""

    option: Option
    num_nodes: int

    @property
    def gain(self) -> float:
        """Expected accepted tokens."""
        return self.option.gains[self.num_nodes - 1]

    @property
    def choice(self) -> Choice:
        """The choice for `Policy.draft`."""
        if self.option.offer is None:
            return Unseen(self.option.member, self.num_nodes)
        return self.option.offer.first(self.num_nodes)


@dataclass(frozen=True)
class Plan:
    """What a step drafts."""

    member: int | None
    """The member that runs a model; None for none."""
    depth: int
    options: Mapping[int, Pick] = field(default_factory=dict)
    """By row."""
    seconds: float = 0.0
    """Expected duration of the step."""

    def cost_of_trial(self, drafting_s: float) -> float:
        """Return how much of this step a draft that takes `drafting_s` would take."""
        return drafting_s / self.seconds if self.seconds else 0.0


def best_plan(
    options: Mapping[int, Sequence[Option]], size: int, costs: StepCosts, members: Mapping[int, float]
) -> Plan:
    """Return the plan with the most expected tokens per second.

    One member that runs a model drafts in a step, or none. The ratio of tokens and seconds is maximised by Dinkelbach's
    method: at a given price of a second in tokens each row takes its best, and the ratio of that is the next price.

    Args:
        options: by row that wants a draft.
        size: number of rows.
        costs: measured durations.
        members: those that run a model, and may draft, each with the seconds that it takes beyond its draft.
    """
    rest = costs.rest(size)
    longest = max((len(option.gains) for row in options.values() for option in row), default=0)
    plain = rest.at(0)
    if not plain:
        return Plan(None, 0)
    more = [(rest.at(size * count) - plain) / size for count in range(longest + 1)]
    forms: list[tuple[int | None, int]] = [(None, 0)]
    for number in (number for number in members if costs.drafting(number).is_known):
        own = [option for row in options.values() for option in row if option.member == number]
        deepest = max((len(option.gains) for option in own), default=0)
        shortest = 1 if all(option.can_shorten for option in own) else max(1, deepest)
        forms += [(number, depth) for depth in range(shortest, deepest + 1)]
    rate = size / plain
    nothing = best = Plan(None, 0, {}, plain)
    for _ in range(_ROUNDS):
        price = [rate * seconds for seconds in more]
        found, highest = best, rate
        for member, depth in forms:
            plan = _plan(options, member, depth, price, more, plain)
            if plan.member is not None:
                drafting_s = costs.drafting(plan.member).at(depth) + members[plan.member]
                plan = replace(plan, seconds=plan.seconds + drafting_s)
            tokens = size + sum(pick.gain for pick in plan.options.values())
            if tokens / plan.seconds > highest * (1 + 1e-9):
                found, highest = plan, tokens / plan.seconds
        if found is best:
            break
        best, rate = found, highest
    return best if rate >= _LEAST_GAIN * size / plain else nothing


def _plan(
    options: Mapping[int, Sequence[Option]],
    member: int | None,
    depth: int,
    price: Sequence[float],
    more: Sequence[float],
    plain: float,
) -> Plan:
    """Return each row's best at a price, if only `member` may run its model, for `depth` nodes; without that time."""
    picks, seconds, is_used = {}, plain, False
    for row, given in options.items():
        best, pick = 0.0, None
        for option in given:
            if option.offer is None and option.member != member:
                continue
            value, count = option.best(price, depth if option.offer is None else None)
            if value > best:
                best, pick = value, Pick(option, count)
        if pick is not None:
            picks[row] = pick
            seconds += more[pick.num_nodes]
            is_used = is_used or pick.option.offer is None
    return Plan(member if is_used else None, depth, picks, seconds)
