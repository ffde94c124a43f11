"""The step after one whose tokens the host has not read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol, Self

import torch

from specdec.engine import Launched, SchedulerOutput, Sequence
from specdec_kernels.begun import Begun, EmittedIds


class Schedules(Protocol):
    """What is asked of the scheduler."""

    running: list[Sequence]

    def goes_on(self) -> bool:
        """See `Scheduler.goes_on`."""


class FollowingStep:
    """The next token of every request of a step that emits one token each.

    Args:
        sequences: of that step, those that run on.
        tokens: the tokens that it emits.
        rows: those of the sequences.
    """

    def __init__(self, sequences: list[Sequence], tokens: EmittedIds, rows: list[int]) -> None:
        self._sequences, self._tokens, self._rows = sequences, tokens, rows

    @classmethod
    def of(cls, last: Launched, *, may_draft: bool = False) -> Self | None:
        """Return the step after `last`; None if it has to wait for the tokens, or for what the next pass overwrites.

        Args:
            last: the step.
            may_draft: whether it may be one in which drafts were allowed and none was made.
        """
        scheduled, scores, begun = last.scheduled, last.scores, last.read
        size = len(scheduled.sequences)
        has_nodes = any(last.batch.num_nodes)  # those of requests that left, too
        has_nodes = has_nodes or (any(scheduled.max_nodes) and not may_draft)
        if not isinstance(begun, Begun) or len(scheduled.decoding) < size or has_nodes:
            return None
        rows = [row for row in range(size) if scheduled.chunks[row]]
        sequences = [scheduled.sequences[row] for row in rows]
        if scores.prompt_logits is not None or any(map(_needs_tokens, sequences)):
            return None
        return cls(sequences, EmittedIds(begun.token_ids, scores.logits.shape[1]), rows)

    @contextmanager
    def as_if_committed(self) -> Iterator[None]:
        """Count the tokens as committed: all of them that the next pass needs are their number and their places."""
        before = [(s, s.num_computed, s.num_tokens, s.delivered) for s in self._sequences]
        for sequence in self._sequences:
            sequence.num_computed = sequence.num_tokens
            sequence.num_tokens += 1
            sequence.delivered += 1  # or it would lack the states that come with the token
        try:
            yield
        finally:
            for sequence, num_computed, num_tokens, delivered in before:
                sequence.num_computed, sequence.num_tokens = num_computed, num_tokens
                sequence.delivered = delivered

    def may_run(self, scheduler: Schedules) -> bool:
        """Return whether it is the next step whatever the tokens are, and reserve its rows."""
        return (
            self._sequences == scheduler.running
            and any(map(_has_room, self._sequences))
            and scheduler.goes_on()
        )

    def schedule(self) -> SchedulerOutput:
        """Return it, without those that end with these tokens by their length."""
        going = [place for place, sequence in enumerate(self._sequences) if _has_room(sequence)]
        size = len(going)
        return SchedulerOutput(
            sequences=[self._sequences[place] for place in going],
            chunks=[1] * size,
            max_nodes=[0] * size,
            decoding=[*range(size)],
            preempted=[],
            unread=(self._tokens, [self._rows[place] for place in going]),
        )


def with_own_states(step: Launched) -> Launched:
    """Return a step whose hidden states, if it has any, are copies, which the next pass does not write to."""
    scores = step.scores
    if scores.hidden_states is None:
        return step
    states = scores.hidden_states, *scores.aux_hidden_states
    final, *aux = torch.cat(states).chunk(len(states))
    return step._replace(scores=replace(scores, hidden_states=final, aux_hidden_states=tuple(aux)))


def _has_room(sequence: Sequence) -> bool:
    return sequence.num_tokens < sequence.max_num_tokens


def _needs_tokens(sequence: Sequence) -> bool:
    """Return whether the host needs the tokens, or the logits, of one step of a request before the next one."""
    listed = sequence.logprobs
    is_read_later = listed is not None and listed.num_few < 0
    return (
        sequence.is_finished or sequence.rules is not None or sequence.expected is not None or is_read_later
    )
