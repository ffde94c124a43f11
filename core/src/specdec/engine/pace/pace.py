"""Shortens and leaves out drafts that do not pay."""

from __future__ import annotations

from collections.abc import Sequence as Several

from specdec.engine.pace.batch_size_costs import BatchSizeCosts
from specdec.engine.pace.request_acceptance import RequestAcceptance, Spread
from specdec.engine.sequence import Sequence

_FEW_PROMPT_ROWS = 0.25
"""Share of a step's rows up to which its time, less what these rows cost, is about what decoding alone would have taken. On a
busy server prompts come in nearly every step: if none of these counted, nothing would ever be known of its batch sizes."""


class Pace:
    """Decides how many nodes a step may draft, by what steps have cost and what drafts have brought.

    For each batch size it knows what a step costs without drafts and by the depth of proposing, and how often the token at each
    draft position is accepted; of each request, how much of that its own drafts have kept. The depth is that with the most
    tokens a second for the requests that run. Where steps without drafts have more, all rest for a while; then drafts are tried
    again, later each time that resting proves right, or as soon as other requests run. While a batch drafts, a request in it
    whose drafts do not pay for their rows rests alone. In a step in which all rest the proposer is not called; it is told later
    what it has missed.

    What is drafted changes no text where verdicts do not depend on it (`strict`).

    Args:
        num_speculative_tokens: k.
        can_shorten: whether nodes lie one behind the other, so that the last ones can be left out; else it is all or nothing.
    """

    def __init__(self, num_speculative_tokens: int, *, can_shorten: bool) -> None:
        self._k, self._can_shorten = num_speculative_tokens, can_shorten
        self._costs_by_size: dict[int, BatchSizeCosts] = {}
        self._costs = self._costs_of(1)
        self._spread = Spread()
        self._count = 0
        self._depth = self._best_depth = 0
        self._resting: list[str] = []
        self._speedup = 0.0
        self._is_decided = False
        self._may_draft = False  # whether the configuration lets any request of the step have a draft
        self._was_plain = False  # whether the last step drafted nothing
        self.is_resting = False
        """Whether the step that is scheduled drafts nothing, and the proposer need not be called."""
        self.num_rested = 0
        """Steps that drafted nothing though they might have."""
        self.num_shortened = 0
        """Steps whose drafts were to be shorter than k."""

    def begin(self, sequences: Several[Sequence], most: int) -> None:
        """Begin a step.

        Args:
            sequences: what runs.
            most: nodes that the configuration allows for one of them; where it allows none there is nothing to decide.
        """
        self._is_decided = self._may_draft = self.is_resting = False
        self._count = len(sequences)
        self._depth = most
        if not sequences or not most:
            return
        costs = self._costs = self._costs_of(self._count)
        self.is_resting = True  # until a request gets a draft
        if costs.is_new or costs.is_unknown:
            self._depth = self._best_depth = self._k
        elif costs.wants_plain or (costs.backoff.is_on and [s.row_id for s in sequences] == self._resting):
            self._depth = 0
        else:
            share = sum(self._acceptance_of(sequence).share for sequence in sequences) / self._count
            self._best_depth, self._speedup = costs.best(self._count, share)
            self._depth = self._best_depth if costs.backoff.decide(self._speedup) else 0
            self._resting = [] if self._depth else [s.row_id for s in sequences]
            if costs.backoff.is_trying:
                self._depth = min(self._k, 2 * self._best_depth)
            self._is_decided = self._depth > 0 and not costs.backoff.is_trying
            if self._is_decided and costs.wants_deep:
                self._depth = min(self._k, 2 * self._depth)

    def limit(self, sequence: Sequence, most: int) -> int:
        """Return the most nodes for one request of the step, of the `most` that the configuration allows it."""
        self._may_draft = self._may_draft or most > 0
        most = min(most, self._depth)
        if most and self._is_decided and self._count > 1:
            acceptance = self._acceptance_of(sequence)
            if not acceptance.backoff.decide(self._own_speedup(acceptance, most)):
                most = 0
        self.is_resting = self.is_resting and most == 0
        return most

    def observe(
        self,
        sequences: Several[Sequence],
        limits: Several[int],
        num_drafted: Several[int],
        num_accepted: Several[int],
        propose_s: float,
        other_s: float,
        *,
        num_prompt_rows: int | None,
        num_rows: int,
    ) -> None:
        """Take in a step.

        Args:
            sequences: those that sampled.
            limits: nodes that each could have had.
            num_drafted: nodes that each had.
            num_accepted: how many were accepted.
            propose_s: seconds of proposing.
            other_s: seconds of all else.
            num_prompt_rows: rows of the target that were tokens of prompts; None where some of the requests that run did not
                sample, so that the step says nothing of their number.
            num_rows: rows of the target, all together.
        """
        costs = self._costs
        is_typical = num_prompt_rows is not None and num_prompt_rows <= _FEW_PROMPT_ROWS * num_rows
        if not sequences:
            return
        if num_prompt_rows and is_typical:
            other_s -= min(num_prompt_rows * costs.seconds_per_node, other_s * num_prompt_rows / num_rows)
        depth = max(limits)
        if not depth and not self.is_resting:
            return
        if not self._may_draft:  # its drafts were not left out: there could be none
            self._was_plain = True
            return
        rows = zip(sequences, limits, num_drafted, num_accepted, strict=True)
        for sequence, limit, drafted, accepted in rows if self._depth else ():
            acceptance = self._acceptance_of(sequence)
            if limit:
                acceptance.drafted(costs.positions.expected(drafted), accepted)
                costs.positions.observe(limit, drafted, accepted)
            elif acceptance.backoff.rested():
                acceptance.fade()
        if not depth:
            self.num_rested += 1
            if costs.count_plain(other_s if is_typical else None, is_first=not self._was_plain):
                for sequence in sequences:
                    self._acceptance_of(sequence).fade()
            self._was_plain = True
            return
        self.num_shortened += depth < self._k
        costs.count_drafted(is_deep=depth > self._best_depth or depth == self._k)
        if not self._was_plain:
            costs.observe(depth, propose_s, other_s, sum(num_drafted), is_typical=is_typical)
        self._was_plain = False

    def _own_speedup(self, acceptance: RequestAcceptance, most: int) -> float:
        """Return how many times what its rows cost the draft of one request of a batch brings."""
        costs = self._costs
        rows = costs.seconds_per_node * sum(costs.positions.rows(most))
        gains = acceptance.share * sum(costs.positions.gains(most))
        seconds_per_token = costs.plain.value / self._count / max(self._speedup, 1.0)
        return gains * seconds_per_token / rows if rows else 2.0

    def _acceptance_of(self, sequence: Sequence) -> RequestAcceptance:
        if sequence.acceptance is None:
            sequence.acceptance = RequestAcceptance(self._spread)
        return sequence.acceptance

    def _costs_of(self, batch_size: int) -> BatchSizeCosts:
        """Return what is known of the smallest power of two that is not below a batch size."""
        number = 1 << max(batch_size - 1, 0).bit_length()
        if number not in self._costs_by_size:
            self._costs_by_size[number] = BatchSizeCosts(self._k, can_shorten=self._can_shorten)
        return self._costs_by_size[number]
