"""The step after one whose tokens the host has not read: its rows take them on the device."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from specdec.engine.containment.verdict import problem_of
from specdec.engine.step import Row, Step
from specdec.interfaces.begun import Begun, EmittedIds

if TYPE_CHECKING:
    from specdec.engine.sequence import Sequence
    from specdec.interfaces.sampler import Sampler, VerifyBatch
    from specdec.interfaces.scorer import Scores


def begin_to_verify(
    sampler: Sampler, batch: VerifyBatch, scores: Scores, device: torch.device
) -> Begun | None:
    """Begin to verify a step; None where that waits for the device."""
    if device.type != "cpu":
        return sampler.begin(scores, batch)
    verdict = sampler.verify(scores, batch)
    if problem_of(verdict, batch, scores.logits.shape[1]) is not None:
        return None
    return Begun(torch.tensor([row[:1] for row in verdict.token_ids]), lambda: verdict)


def following(last: Step, running: list[Sequence], *, may_draft: bool = False) -> Step | None:
    """Return the step that runs the next token of every sample of a step without drafts, which emits one token each.

    Samples that end with these tokens by their length are not in it.

    Args:
        last: the step, which is launched.
        running: the running samples.
        may_draft: whether `last` may be a step in which drafts were allowed and none was made.

    Returns:
        None if the host has to read the tokens first, or other samples run next.
    """
    begun, scores = last.begun, last.scores
    if not isinstance(begun, Begun) or scores is None or scores.prompt_logits is not None:
        return None
    if len(last.sampled) < len(last.rows) or any(row.nodes for row in last.sampled):  # those that left, too
        return None
    if not may_draft and any(row.cap for row in last.rows):
        return None
    places = [place for place, row in enumerate(last.rows) if row.chunk]
    if [last.rows[place].sequence for place in places] != running or any(map(_needs_tokens, running)):
        return None
    places = [
        place
        for place in places
        if last.rows[place].num_tokens + 1 < last.rows[place].sequence.max_num_tokens
    ]
    if not places:
        return None
    rows = [last.rows[place] for place in places]
    step = Step([Row(r.sequence, r.num_tokens, r.num_tokens + 1, chunk=1, is_sampled=True) for r in rows])
    step.emitted = EmittedIds(begun.token_ids, scores.logits.shape[1]), places
    step.sampled = step.rows
    return step


def keep_states(step: Step) -> None:
    """Copy the hidden states of a step, if it has any, because the next pass writes to their memory."""
    scores = step.scores
    if scores is not None and scores.hidden_states is not None:
        states = scores.hidden_states, *scores.aux_hidden_states
        final, *aux = torch.cat(states).chunk(len(states))
        step.scores = replace(scores, hidden_states=final, aux_hidden_states=tuple(aux))
    step.owns_states = True


def _needs_tokens(sequence: Sequence) -> bool:
    """Return whether the host needs the tokens, or the logits, of one step of a request before the next one."""
    listed = sequence.logprobs
    is_read_later = listed is not None and listed.num_few < 0
    return (
        sequence.is_finished or sequence.rules is not None or sequence.expected is not None or is_read_later
    )
