"""Shortens and leaves out drafts that do not pay."""

from __future__ import annotations

from collections.abc import Sequence as Several
from itertools import accumulate

from specdec.engine.pace.measured import Line, Mean, SteadyMean
from specdec.engine.pace.places import Places
from specdec.engine.sequence import Sequence

_FIRST_STEPS, _TRIAL_STEPS = 6, 4
"""Drafting steps before a batch size is judged, and after a rest."""
_PLAIN_STEPS = 3
"""Steps without drafts before it is judged."""
_PLAIN_EVERY, _DEEP_EVERY = 64, 16
"""Drafting steps between two that have no drafts, and between two twice as deep as is best: both are looked at again."""
_FIRST_REST, _LONGEST_REST = 16, 256
"""Steps of a rest; each one that is found right is followed by one twice as long."""
_TO_BEGIN, _TO_GO_ON = 1.03, 0.98
"""Drafting begins where it makes this many times the tokens a second of steps without drafts, and ends where it makes less."""
_LIKE_OTHERS = 6.0
"""Expected tokens by which a request is taken to be like all others."""
_KEPT_OF_REQUEST = 0.95


class _Size:
    """What is known of one batch size, and where its drafting stands."""

    def __init__(self) -> None:
        self.plain, self.drafting, self.nodes = SteadyMean(), SteadyMean(), Mean()
        """Seconds of a step but for proposing, without and with drafts; nodes of the latter."""
        self.proposing = Line()
        """Seconds by depth."""
        self.places = Places()
        self.trial_left = _FIRST_STEPS
        self.trial_depth = 0
        """0 for k."""
        self.is_drafting = False
        self.rest_left = 0
        self.rest_length = _FIRST_REST
        self.since_plain = self.since_deep = 0

    def rest(self, depth: int) -> None:
        """Begin a rest, after which drafts of a depth are tried: the least bad one."""
        self.trial_depth = depth
        self.rest_left = self.rest_length
        self.places.doubt()
        self.rest_length = min(2 * self.rest_length, _LONGEST_REST)

    def rested(self) -> None:
        """Count a step without drafts."""
        self.since_plain = 0
        if self.rest_left:
            self.rest_left -= 1
            self.trial_left = 0 if self.rest_left else _TRIAL_STEPS

    def drafted(self, *, is_deep: bool) -> None:
        """Count a step with drafts."""
        self.trial_left = max(0, self.trial_left - 1)
        self.since_plain += 1
        self.since_deep = 0 if is_deep else self.since_deep + 1

    @property
    def seconds_per_node(self) -> float:
        """What one more row of the target costs."""
        nodes = self.nodes.value
        return max(0.0, self.drafting.value - self.plain.value) / nodes if nodes else 0.0


class Pace:
    """Decides how many nodes a step may draft, by what steps have cost and what drafts have brought.

    For each batch size it knows what a step costs without drafts, what each drafted row and each depth of proposing adds, and
    how often the token at each place of a draft stands. The depth is that with the most tokens a second; where none has more
    than steps without drafts, drafting rests, and is tried again after a while, later each time that this proves right. Of a
    batch, a request whose drafts bring less than those of others gets shorter ones. While drafting rests the proposer is not
    called; it is told later what it has missed.

    What is drafted changes no text where verdicts do not depend on it (`strict`).

    Args:
        num_speculative_tokens: k.
        can_shorten: whether nodes lie one behind the other, so that the last ones can be left out; else it is all or nothing.
    """

    def __init__(self, num_speculative_tokens: int, *, can_shorten: bool) -> None:
        self._k, self._can_shorten = num_speculative_tokens, can_shorten
        self._sizes: dict[int, _Size] = {}
        self._size = _Size()
        self._worth = 0.0
        self._best_depth = 0
        self._is_behind = False
        self.is_resting = False
        """Whether the step that has begun is to draft nothing, and the proposer is not to be called."""
        self.num_rested = 0
        """Steps that drafted nothing though they might have."""
        self.num_shortened = 0
        """Steps whose drafts were to be shorter than k."""

    def begin(self, sequences: Several[Sequence], most: int) -> int:
        """Begin a step.

        Args:
            sequences: what runs.
            most: nodes that the configuration allows for one of them; where it allows none there is nothing to decide.

        Returns:
            the most nodes that one of them may have.
        """
        self._worth, self.is_resting = 0.0, False
        if not sequences or not most:
            return most
        self._size = self._sizes.setdefault(_bucket(len(sequences)), _Size())
        depth = min(most, self._decide(self._size, sequences))
        self.is_resting = depth == 0
        return depth

    def limit(self, sequence: Sequence, most: int) -> int:
        """Return the most nodes for one request of the step, at most `most`."""
        if not self._can_shorten or self._worth <= 0.0:
            return most
        share, size = _share(sequence), self._size
        gains, rows = size.places.gains(most), size.places.rows(most)
        least = self._worth * size.seconds_per_node
        return next((place for place in range(most) if share * gains[place] < least * rows[place]), most)

    def observe(
        self,
        sequences: Several[Sequence],
        limits: Several[int],
        num_drafted: Several[int],
        num_accepted: Several[int],
        propose_s: float,
        other_s: float,
        *,
        is_typical: bool,
    ) -> None:
        """Take in a step.

        Args:
            sequences: those that sampled.
            limits: nodes that each could have had.
            num_drafted: nodes that each had.
            num_accepted: how many stood.
            propose_s: seconds of proposing.
            other_s: seconds of all else.
            is_typical: whether nothing but decoding was done, so that its times say something.
        """
        size = self._size
        if not sequences:
            return
        if self.is_resting:
            self._is_behind = True
            self.num_rested += 1
            size.rested()
            if is_typical:
                size.plain.observe(other_s)
            return
        depth = max(limits)
        if not depth:
            return
        self.num_shortened += depth < self._k
        size.drafted(is_deep=depth > self._best_depth or depth == self._k)
        if is_typical:
            if not self._is_behind:
                size.proposing.observe(depth, propose_s)
            size.drafting.observe(other_s)
            size.nodes.observe(sum(num_drafted))
        self._is_behind = False
        rows = zip(sequences, limits, num_drafted, num_accepted, strict=True)
        for sequence, limit, drafted, accepted in rows:
            kept, hoped = sequence.draft_record
            hoped = _KEPT_OF_REQUEST * hoped + sum(size.places.gains(limit))
            sequence.draft_record = _KEPT_OF_REQUEST * kept + accepted, hoped
            size.places.observe(limit, drafted, accepted)

    def _decide(self, size: _Size, sequences: Several[Sequence]) -> int:
        """Return the depth of a step; 0 for none."""
        if size.trial_left:
            return size.trial_depth or self._k
        if size.rest_left or size.plain.count < _PLAIN_STEPS:
            return 0
        if size.since_plain >= _PLAIN_EVERY:
            size.rest_length = _FIRST_REST
            return 0
        depth, worth = self._best(size, sequences)
        least = _TO_GO_ON if size.is_drafting else _TO_BEGIN
        size.is_drafting = worth >= least * len(sequences) / size.plain.value
        if not size.is_drafting:
            size.rest(depth)
            return 0
        self._best_depth = depth
        if size.since_deep >= _DEEP_EVERY:
            return min(self._k, 2 * depth)
        self._worth = worth
        return depth

    def _best(self, size: _Size, sequences: Several[Sequence]) -> tuple[int, float]:
        """Return the depth with the most tokens a second, and these."""
        count = len(sequences)
        share = sum(map(_share, sequences)) / count
        gains = list(accumulate(size.places.gains(self._k)))
        rows = list(accumulate(size.places.rows(self._k)))
        best, most = self._k, 0.0
        for depth in range(1, self._k + 1) if self._can_shorten else (self._k,):
            seconds = size.plain.value + size.seconds_per_node * count * rows[depth - 1]
            seconds += size.proposing.at(depth)
            speed = count * (1.0 + share * gains[depth - 1]) / seconds
            if speed > most:
                best, most = depth, speed
        return best, most


def _share(sequence: Sequence) -> float:
    """Return what part of what was expected of a request's drafts has stood."""
    kept, hoped = sequence.draft_record
    return (kept + _LIKE_OTHERS) / (hoped + _LIKE_OTHERS)


def _bucket(batch_size: int) -> int:
    """Return the smallest power of two that is not below a batch size."""
    return 1 << max(batch_size - 1, 0).bit_length()
