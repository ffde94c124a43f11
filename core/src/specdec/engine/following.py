"""The step after one whose tokens the host has not read: its rows take them on the device."""

from __future__ import annotations

from collections.abc import Sequence as Ids
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from specdec.engine.containment.verdict import problem_of
from specdec.engine.step import Row, Step
from specdec.interfaces.begun import Begun, EmittedIds
from specdec.interfaces.forward import Moves

if TYPE_CHECKING:
    from specdec.engine.sequence import Sequence
    from specdec.interfaces.request_table import RequestTable
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
    # Rows that left count, too.
    if len(last.sampled) < len(last.rows) or any(row.num_nodes for row in last.sampled):
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


def behind_drafts(last: Step, running: list[Sequence], depths: Ids[int]) -> Step | None:
    """Return the step behind one with drafts whose verdict is not read; its rows begin as if all were rejected.

    Args:
        last: the step, which is launched.
        running: the running samples.
        depths: `[B]` the most nodes that may be accepted.

    Returns:
        None if the host has to read the verdict first, or other samples run next.
    """
    begun, scores, nodes = last.begun, last.scores, last.device_nodes
    if not isinstance(begun, Begun) or begun.places is None or nodes is None:
        return None
    if nodes.is_tree and begun.paths is None:
        return None
    if scores is None or scores.prompt_logits is not None or len(last.sampled) < len(last.rows):
        return None
    if [row.sequence for row in last.rows if row.chunk] != running or len(running) < len(last.rows):
        return None
    if any(map(_needs_tokens, running)) or len(depths) != len(last.rows):
        return None
    step = Step([])
    for row, depth in zip(last.rows, depths, strict=True):
        slack = min(row.num_nodes, depth)
        if row.sequence.max_num_tokens <= row.num_tokens + 1 + slack:
            return None  # it may end
        step.rows.append(
            Row(row.sequence, row.num_tokens, row.num_tokens + 1, chunk=1, is_sampled=True, slack=slack)
        )
    step.sampled = step.rows
    step.moves = Moves(
        begun.places, range(len(step.rows)), max(row.slack for row in step.rows), scores.logits.shape[1]
    )
    return step


def keep_states(step: Step) -> None:
    """Copy the hidden states of a step, if it has any, because the next pass writes to their memory."""
    scores = step.scores
    if scores is not None and scores.hidden_states is not None:
        states = scores.hidden_states, *scores.aux_hidden_states
        final, *aux = torch.cat(states).chunk(len(states))
        step.scores = replace(scores, hidden_states=final, aux_hidden_states=tuple(aux))
    step.owns_states = True


def states_behind(step: Step, table: RequestTable) -> None:
    """Find the hidden states of a step where the recorded pass behind it has put them."""
    scores = step.scores
    before = table.states_before
    if scores is None or scores.hidden_states is None or table.states is None or before is None:
        return
    if scores.hidden_states.untyped_storage().data_ptr() == table.states.untyped_storage().data_ptr():
        final, *aux = before[:, : len(scores.hidden_states)].unbind()
        step.scores = replace(scores, hidden_states=final, aux_hidden_states=tuple(aux))


def _needs_tokens(sequence: Sequence) -> bool:
    """Return whether the host needs the tokens, or the logits, of one step of a request before the next one."""
    listed = sequence.logprobs
    is_read_later = listed is not None and listed.num_few < 0
    return (
        sequence.is_finished or sequence.rules is not None or sequence.expected is not None or is_read_later
    )
