"""Measurements of the steps of one batch size."""

from __future__ import annotations

from itertools import accumulate

from specdec.engine.speculation.adaptive.backoff import Backoff
from specdec.engine.speculation.adaptive.measured import ByDepth, Mean, Median
from specdec.engine.speculation.adaptive.position_acceptance import PositionAcceptance

_FIRST_STEPS, _PLAIN_STEPS = 6, 3
"""Number of steps with full-length drafts, and without drafts, before the first decision."""
_PLAIN_EVERY, _DEEP_EVERY = 96, 16
"""Number of drafting steps between two pairs of steps without drafts, and between two steps of twice the best
depth: both are measured again."""
_INGESTED_DECAY = 0.995
_ANEW_EVERY = 4
"""Number of drafting steps after which gains and costs are recomputed."""


class BatchSizeCosts:
    """Costs and gains of one batch size.

    Args:
        most: k.
        can_shorten: whether drafts may be shorter than k.
    """

    def __init__(self, most: int, *, can_shorten: bool) -> None:
        self._depths = range(1, most + 1) if can_shorten else range(most, most + 1)
        self.plain, self.drafting, self.nodes = Median(), Median(), Mean()
        """Seconds of a step except proposing, without and with drafts; number of nodes of the latter."""
        self.proposing, self.others = ByDepth(), ByDepth()
        """Seconds of proposing, and of the rest, in steps with drafts."""
        self.ingesting = Mean(decay=_INGESTED_DECAY)
        """Additional seconds of proposing in steps with drafts, beyond their depth's, for the proposer's
        prefill."""
        self.positions = PositionAcceptance()
        self.backoff = Backoff()
        self._tries_left = 2 * _PLAIN_STEPS
        self._num_drafted = self._since_plain = self._since_deep = 0
        self._table: tuple[int, list[float], list[float]] | None = None

    @property
    def is_new(self) -> bool:
        """Whether full-length drafts are to be measured first."""
        return self._num_drafted < _FIRST_STEPS

    @property
    def wants_plain(self) -> bool:
        """Whether a step without drafts is to be measured."""
        is_first = self.plain.count < _PLAIN_STEPS and self._tries_left > 0
        return not self.is_new and (is_first or self._since_plain >= _PLAIN_EVERY)

    @property
    def is_unknown(self) -> bool:
        """Whether too few steps without drafts could be measured so far, for example under constant prefill."""
        return self.plain.count < _PLAIN_STEPS and not self.wants_plain

    @property
    def wants_deep(self) -> bool:
        """Whether a draft deeper than the best depth is to be measured."""
        return self._since_deep >= _DEEP_EVERY

    def count_plain(self, seconds: float | None, *, is_first: bool) -> bool:
        """Count a step without drafts; returns whether drafts are tried again now.

        Args:
            seconds: its duration; None if it is not representative.
            is_first: whether the step before had drafts: caches are then warm for drafting, and the duration
                is not representative.
        """
        if seconds is not None and not is_first:
            self.plain.observe(seconds)
        self._tries_left -= 1
        if not is_first:
            self._since_plain = 0
        is_over = self.backoff.count_plain_step()
        if is_over:
            self.positions.fade()
            self.ingesting.fade()
            self._table = None
        return is_over

    def count_drafted(self, *, is_deep: bool) -> None:
        """Count a step with drafts."""
        self.backoff.count_drafted_step()
        self._num_drafted += 1
        self._since_plain += 1
        self._since_deep = 0 if is_deep else self._since_deep + 1
        if self._num_drafted % _ANEW_EVERY == 0 or self.backoff.is_trying:
            self._table = None

    def observe(
        self, depth: int, propose_s: float, other_s: float, num_nodes: int, *, is_typical: bool
    ) -> None:
        """Record the times of a step with drafts; see `AdaptiveDepth.observe`."""
        if not is_typical:
            if self.proposing.is_known:
                # At most the target's own pass over the prompt: more is compilation or graph capture.
                more = propose_s - self.proposing.upto(depth, 0.0)[-1]
                self.ingesting.observe(min(max(0.0, more), other_s))
            return
        self.ingesting.observe(0.0)
        self.proposing.observe(depth, propose_s)
        self.others.observe(depth, other_s)
        self.drafting.observe(other_s)
        self.nodes.observe(num_nodes)

    @property
    def seconds_per_node(self) -> float:
        """Seconds of one more row of the target."""
        nodes = self.nodes.value
        return max(0.0, self.drafting.value - self.plain.value) / nodes if nodes else 0.0

    def best(self, count: int, share: float) -> tuple[int, float]:
        """Return the depth with the highest throughput, and its speedup over steps without drafts.

        Args:
            count: number of requests.
            share: gains of these requests relative to the usual ones.
        """
        gains, seconds = self._totals(count)
        plain, best, highest = self.plain.value, self._depths[-1], 0.0
        for depth in self._depths:
            speedup = (1.0 + share * gains[depth - 1]) * plain / seconds[depth - 1]
            if speedup > highest:
                best, highest = depth, speedup
        return best, highest

    def _totals(self, count: int) -> tuple[list[float], list[float]]:
        """Return accepted tokens of a draft and seconds of a step by depth, for `count` requests."""
        if self._table is None or self._table[0] != count:
            most, plain = self._depths[-1], self.plain.value
            proposing, others = self.proposing.upto(most, 0.0), self.others.upto(most, plain)
            once = self.ingesting.value
            seconds = [once + a + b for a, b in zip(proposing, others, strict=True)]
            self._table = count, list(accumulate(self.positions.gains(most))), seconds
        return self._table[1], self._table[2]
