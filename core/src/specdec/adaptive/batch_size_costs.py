"""Costs and gains of the steps of one batch size."""

from __future__ import annotations

import numpy as np

from specdec.adaptive.backoff import Backoff
from specdec.adaptive.mean import Mean
from specdec.adaptive.position_acceptance import Floats, PositionAcceptance
from specdec.adaptive.step_costs import StepCosts

_FIRST_STEPS, _PLAIN_STEPS = 4, 3
"""Number of steps with nodes, and without drafts, before the first decision."""
_FIRST_TRIES = 32
"""Number of steps in which drafts are wanted before it, if hardly any has nodes: many proposers seldom find something."""
_PLAIN_EVERY, _DEEP_EVERY = 256, 32
"""Number of steps in which drafts are wanted between two pairs of steps without, and between two of twice the best depth: both
are measured again."""
_PLAIN_SOON, _CLEAR = 12, 1.25
"""The former, for each step without drafts that was measured, while these are few; and the speedup from which on drafts clearly
pay, so that it is four times as many."""
_INGESTED_DECAY = 0.995
_MOST_ASKING = 0.5
"""The most of a step that asking may seem to add to it: what takes longer is other work of the machine."""
_ANEW_EVERY = 4
"""Number of drafting steps after which gains and costs are recomputed."""


class BatchSizeCosts:
    """Costs and gains of one batch size.

    What a depth costs follows from the nodes that it leads to: proposers often draft fewer than they may.

    Args:
        size: the batch size.
        most: k.
        can_shorten: whether drafts may be shorter than k.
        costs: measured durations of all batch sizes.
    """

    def __init__(self, size: int, most: int, *, can_shorten: bool, costs: StepCosts) -> None:
        self._size, self._costs = size, costs
        self._depths = np.arange(1 if can_shorten else most, most + 1)
        self._rest, self._drafting = costs.rest(size), costs.drafting(size)
        self.nodes = Mean()
        """Number of nodes of the batch in steps with drafts."""
        self.ingesting = Mean(decay=_INGESTED_DECAY)
        """Additional seconds of proposing in steps with drafts, beyond their depth's, for the proposer's
        prefill."""
        self.asking = Mean()
        """Additional seconds of the rest of a step in which a draft was wanted and none was found, beyond one without
        drafts: what is delivered, checked and counted for the proposer. 0 for steps with nodes, whose cost has it."""
        self.positions = PositionAcceptance()
        self.backoff = Backoff()
        self._tries_left = 2 * _PLAIN_STEPS
        self._num_drafted = self._num_with_nodes = self._since_plain = self._since_deep = 0
        self._speedup = 0.0
        self._table: tuple[int, Floats, Floats] | None = None

    @property
    def is_new(self) -> bool:
        """Whether drafts are to be measured first."""
        return self._num_with_nodes < _FIRST_STEPS and self._num_drafted < _FIRST_TRIES

    @property
    def wants_plain(self) -> bool:
        """Whether a step without drafts is to be measured."""
        num_plain = self._rest.num_measured(0)
        is_first = num_plain < _PLAIN_STEPS and self._tries_left > 0
        wait = min(_PLAIN_EVERY, (_PLAIN_SOON if self._speedup < _CLEAR else 4 * _PLAIN_SOON) * num_plain)
        return not self.is_new and (is_first or (num_plain > 0 and self._since_plain >= wait))

    @property
    def is_unknown(self) -> bool:
        """Whether too few steps without drafts could be measured so far, for example under constant prefill."""
        return self._rest.num_measured(0) < _PLAIN_STEPS and not self.wants_plain

    @property
    def wants_deep(self) -> bool:
        """Whether a draft deeper than the best depth is to be measured."""
        return self._since_deep >= _DEEP_EVERY

    @property
    def plain_s(self) -> float:
        """Seconds of a step without drafts."""
        return self._rest.at(0)

    def count_plain(self, seconds: float | None, *, is_first: bool) -> bool:
        """Count a step without drafts; returns whether drafts are tried again now.

        Args:
            seconds: its duration; None if it is not representative.
            is_first: whether the step before had drafts: caches are then warm for drafting, and the duration
                is not representative.
        """
        if seconds is not None and not is_first:
            self._costs.observe_step_without_draft(self._size, 0, seconds)
        self._tries_left -= 1
        if not is_first:
            self._since_plain = 0
        is_over = self.backoff.count_plain_step()
        if is_over:
            self.positions.fade()
            self.ingesting.fade()
            self.asking.fade()
            self._table = None
        return is_over

    def count_drafted(self, num_nodes: int, *, is_deep: bool) -> None:
        """Count a step in which drafts were wanted."""
        self.backoff.count_drafted_step(has_nodes=num_nodes > 0)
        self._num_drafted += 1
        self._num_with_nodes += num_nodes > 0
        self._since_plain += 1
        self._since_deep = 0 if is_deep else self._since_deep + 1
        if self._num_drafted % _ANEW_EVERY == 0 or self.backoff.is_trying:
            self._table = None

    def observe(
        self, depth: int, propose_s: float, other_s: float, num_nodes: int, *, is_typical: bool
    ) -> None:
        """Record the times of a step with drafts; see `AdaptiveDepth.observe`."""
        if not is_typical:
            if self._drafting.is_known:
                # At most the target's own pass over the prompt: more is compilation or graph capture.
                more = propose_s - self._drafting.at(depth)
                self.ingesting.observe(min(max(0.0, more), other_s))
            return
        self.ingesting.observe(0.0)
        self._costs.observe_draft(self._size, depth, propose_s)
        more = 0.0
        if num_nodes:
            self._costs.observe_step_without_draft(self._size, num_nodes, other_s)
        elif plain_s := self.plain_s:
            more = min(self._costs.usual(other_s) - plain_s, _MOST_ASKING * plain_s)
        self.asking.observe(more)
        self.nodes.observe(num_nodes)

    @property
    def seconds_per_node(self) -> float:
        """Seconds of one more row of the target."""
        nodes = self.nodes.value
        return (self._rest.at(max(1, round(nodes))) - self.plain_s) / max(1.0, nodes) if nodes else 0.0

    def best(self, count: int, share: float) -> tuple[int, float]:
        """Return the depth with the highest throughput, and its speedup over steps without drafts.

        Args:
            count: number of requests.
            share: gains of these requests relative to the usual ones.
        """
        gains, seconds = self._totals(count)
        speedups = (1.0 + share * gains[self._depths - 1]) / seconds
        best = int(speedups.argmax())
        self._speedup = float(speedups[best]) * self.plain_s
        return int(self._depths[best]), self._speedup

    def _totals(self, count: int) -> tuple[Floats, Floats]:
        """Return accepted tokens of a draft of 1 to k nodes, and seconds of a step of each depth, for `count` requests."""
        if self._table is None or self._table[0] != count:
            most = int(self._depths[-1])
            # A node costs what it adds where it is drafted, behind all before it.
            more = self.positions.rows(most) * np.diff(self._rest.along(count * np.arange(most + 1)))
            seconds = (
                self.ingesting.value
                + max(0.0, self.asking.value)
                + self.plain_s
                + more.cumsum()[self._depths - 1]
            )
            seconds += self._drafting.along(self._depths)
            self._table = count, self.positions.gains(most).cumsum(), seconds
        return self._table[1], self._table[2]
