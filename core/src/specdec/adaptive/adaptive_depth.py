"""Shortens or skips drafts that do not pay off."""

from __future__ import annotations

from collections.abc import Sequence

from specdec.adaptive.batch_size_costs import BatchSizeCosts
from specdec.adaptive.measured_step import DraftedFor, MeasuredStep
from specdec.adaptive.request_acceptance import RequestAcceptance, Spread
from specdec.adaptive.step_costs import StepCosts

_FIRST_DEPTH = 4
"""Depth of the first drafts, whose cost is unknown."""
_FEW_PROMPT_ROWS = 0.25
"""Maximum share of prompt rows in a step that is still measured: its time less the cost of these rows is
about that of decoding alone. On a busy server nearly every step has prompt rows: without such steps, its
batch sizes would never be measured."""


class AdaptiveDepth:
    """Decides how many nodes a step may draft, from the measured cost of steps and gain of drafts.

    For each batch size it measures the time of a step without drafts and for each depth of drafts, and how
    often the token at each draft position is accepted. For each request it measures the acceptance of its own
    drafts relative to that. It chooses the depth with the highest throughput for the running requests.

    If steps without drafts have a higher throughput, drafting is suspended for the whole batch.
    Drafts are tried again after a while, or as soon as other requests run; each suspension that proves right is
    followed by a longer one. While a batch drafts, a request whose drafts do not pay for their rows is
    suspended alone.

    One object serves one engine. In each step come `begin`, `limit` for each sample, and `observe`. If verdicts do not depend
    on drafts (`strict`), its decisions change no text.

    Args:
        num_speculative_tokens: k.
        can_shorten: whether drafts are chains, whose last nodes can be left out; otherwise a step drafts k nodes or none.
    """

    is_suspended: bool = False
    """Whether the step that has begun drafts nothing, so that the proposer is not called; it gets the missed tokens later."""

    def __init__(self, num_speculative_tokens: int, *, can_shorten: bool) -> None:
        self._k, self._can_shorten = num_speculative_tokens, can_shorten
        self._measured = StepCosts()
        self._costs_by_size: dict[int, BatchSizeCosts] = {}
        self._spread = Spread()
        self._count = 0
        self._depth = self._best_depth = 0
        self._suspended_ids: list[str] = []
        self._speedup = 0.0
        self._is_decided = False
        self._may_draft = False  # whether the configuration allows a draft for any request of the step
        self._was_plain = False  # whether the last step drafted nothing
        self._costs = self._costs_of(1)

    def begin(self, sequences: Sequence[DraftedFor], most: int) -> None:
        """Begin a step.

        Args:
            sequences: the running samples.
            most: maximum number of nodes that the configuration allows for one of them; if 0, nothing is
                decided.
        """
        self._is_decided = self._may_draft = self.is_suspended = False
        self._count = len(sequences)
        self._depth = most
        if not sequences or not most:
            return
        costs = self._costs = self._costs_of(self._count)
        self.is_suspended = True  # until a request gets a draft
        if costs.is_new or costs.is_unknown:
            is_short = costs.is_new and self._can_shorten
            self._depth = self._best_depth = min(self._k, _FIRST_DEPTH) if is_short else self._k
        elif costs.wants_plain or (
            costs.backoff.is_suspended and [s.row_id for s in sequences] == self._suspended_ids
        ):
            self._depth = 0
        else:
            share = sum(self._acceptance_of(sequence).share for sequence in sequences) / self._count
            self._best_depth, self._speedup = costs.best(self._count, share)
            is_other = costs.backoff.is_suspended and any(
                s.row_id not in self._suspended_ids for s in sequences
            )
            self._depth = self._best_depth if costs.backoff.decide(self._speedup, is_other=is_other) else 0
            self._suspended_ids = [] if self._depth else [s.row_id for s in sequences]
            if costs.backoff.is_trying:
                self._depth = min(self._k, 2 * self._best_depth)
            self._is_decided = self._depth > 0 and not costs.backoff.is_trying
            if self._is_decided and costs.wants_deep:
                self._depth = min(self._k, 2 * self._depth)

    def limit(self, sequence: DraftedFor, most: int) -> int:
        """Return the maximum number of nodes for one sample, at most the `most` that are allowed."""
        self._may_draft = self._may_draft or most > 0
        most = min(most, self._depth)
        if most and self._is_decided and self._count > 1:
            acceptance = self._acceptance_of(sequence)
            if not acceptance.backoff.decide(self._own_speedup(acceptance, most)):
                most = 0
        self.is_suspended = self.is_suspended and most == 0
        return most

    def observe(self, step: MeasuredStep) -> None:
        """Record a step; not called where the proposer failed or was paused."""
        costs = self._costs
        is_typical = (
            step.num_prompt_rows is not None and step.num_prompt_rows <= _FEW_PROMPT_ROWS * step.num_rows
        )
        if not step.sequences:
            return
        other_s = step.other_s
        if step.num_prompt_rows and is_typical:
            share = step.num_prompt_rows / step.num_rows
            other_s -= min(step.num_prompt_rows * costs.seconds_per_node, other_s * share)
        depth = max(step.limits)
        if not depth and not self.is_suspended:
            return
        if not self._may_draft:  # no drafts were allowed, so none were skipped
            self._was_plain = True
            return
        rows = zip(step.sequences, step.limits, step.num_drafted, step.num_accepted, strict=True)
        for sequence, limit, drafted, accepted in rows if self._depth or depth else ():
            acceptance = self._acceptance_of(sequence)
            if limit:
                acceptance.drafted(costs.positions.expected(drafted), accepted)
                costs.positions.observe(limit, drafted, accepted)
            elif acceptance.backoff.count_plain_step():
                acceptance.fade()
        if not depth:
            if costs.count_plain(other_s if is_typical else None, is_first=not self._was_plain):
                for sequence in step.sequences:
                    self._acceptance_of(sequence).fade()
            self._was_plain = True
            return
        num_nodes = sum(step.num_drafted)
        costs.count_drafted(num_nodes, is_deep=depth > self._best_depth or depth == self._k)
        if not self._was_plain:
            costs.observe(depth, step.propose_s, other_s, num_nodes, is_typical=is_typical)
        self._was_plain = False

    def _own_speedup(self, acceptance: RequestAcceptance, most: int) -> float:
        """Return the gain of one request's draft as a multiple of the cost of its rows."""
        costs = self._costs
        rows = costs.seconds_per_node * float(costs.positions.rows(most).sum())
        gains = acceptance.share * float(costs.positions.gains(most).sum())
        seconds_per_token = costs.plain_s / self._count / max(self._speedup, 1.0)
        return gains * seconds_per_token / rows if rows else 2.0

    def _acceptance_of(self, sequence: DraftedFor) -> RequestAcceptance:
        if sequence.depth_state is None:
            sequence.depth_state = RequestAcceptance(self._spread)
        return sequence.depth_state

    def _costs_of(self, batch_size: int) -> BatchSizeCosts:
        """Return the costs of a batch size, rounded up to a power of two."""
        number = 1 << max(batch_size - 1, 0).bit_length()
        if number not in self._costs_by_size:
            self._costs_by_size[number] = BatchSizeCosts(
                number, self._k, can_shorten=self._can_shorten, costs=self._measured
            )
        return self._costs_by_size[number]
