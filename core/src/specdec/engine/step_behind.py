"""The step behind one whose tokens the host has not read: its rows take them on the device."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from specdec.engine.containment.verdict import problem_of
from specdec.engine.sequence import Sequence
from specdec.engine.step import Row, Step
from specdec.interfaces.async_verdict import AsyncVerdict
from specdec.interfaces.unread import UnreadVerdict

if TYPE_CHECKING:
    from specdec.interfaces.pass_memory import PassMemory
    from specdec.interfaces.sampler import Sampler, VerifyBatch
    from specdec.interfaces.scorer import Scores


def begin_to_verify(
    sampler: Sampler, batch: VerifyBatch, scores: Scores, device: torch.device
) -> AsyncVerdict | None:
    """Begin to verify a step; None where that waits for the device."""
    if device.type != "cpu":
        return sampler.begin(scores, batch)
    verdict = sampler.verify(scores, batch)
    if problem_of(verdict, batch, scores.logits.shape[1]) is not None:
        return None
    width = max(map(len, verdict.token_ids), default=1)
    token_ids = torch.tensor([[*row, *[-1] * (width - len(row))] for row in verdict.token_ids])
    counts = torch.tensor(verdict.num_accepted)
    if batch.table is not None:
        batch.table.append(torch.tensor(batch.lines), counts, token_ids)
    return AsyncVerdict(token_ids, counts, lambda: verdict, has_appended=batch.table is not None)


def step_behind(last: Step, running: list[Sequence]) -> Step | None:
    """Return the step that runs the next token of every sample of a launched step, as if its drafts were rejected.

    Samples that end with this token by their length are not in it. It `waits` if the host needs tokens before its pass.

    Args:
        last: the launched step.
        running: the running samples.

    Returns:
        None if the host has to read the verdict first, or other samples run next.
    """
    pending, scores = last.pending, last.scores
    if not isinstance(pending, AsyncVerdict) or scores is None or scores.prompt_logits is not None:
        return None
    if len(last.sampled) < len(last.rows):  # those that left, too
        return None
    places = [place for place, row in enumerate(last.rows) if row.chunk]
    if [last.rows[place].sequence for place in places] != running or any(s.is_finished for s in running):
        return None
    has_nodes = any(row.num_nodes for row in last.rows)
    if has_nodes:  # the pass finds on the device how far each row moves
        is_tree = any(row.parents is not None for row in last.rows)
        is_tree = is_tree if last.device_nodes is None else last.device_nodes.is_tree
        if pending.offsets is None or (pending.paths is None and is_tree) or len(places) < len(last.rows):
            return None
    rows, kept, ending = list[Row](), list[int](), list[Sequence]()
    for place in places:
        row = last.rows[place]
        slack = row.num_nodes
        if row.num_tokens + 1 + slack >= row.sequence.max_num_tokens:
            if has_nodes:
                return None  # it may end
            ending.append(row.sequence)
            continue
        start = row.num_tokens
        rows.append(Row(row.sequence, start, start + 1, chunk=1, is_sampled=True, slack=slack))
        kept.append(place)
    if not rows:
        return None
    step = Step(rows, sampled=rows, ending=ending, waits=any(map(_needs_tokens, running)))
    step.behind = UnreadVerdict(pending.token_ids, pending.offsets, kept, max(row.slack for row in rows))
    return step


def keep_states(step: Step) -> None:
    """Copy the hidden states of a step, if it has any, because the next pass writes to their memory."""
    scores = step.scores
    if scores is not None and scores.hidden_states is not None:
        states = scores.hidden_states, *scores.aux_hidden_states
        final, *aux = torch.cat(states).chunk(len(states))
        step.scores = replace(scores, hidden_states=final, aux_hidden_states=tuple(aux))
    step.owns_states = True


def states_behind(step: Step, memory: PassMemory) -> None:
    """Find the hidden states of a step where the recorded pass behind it has put them."""
    scores = step.scores
    before = memory.states_before
    if scores is None or scores.hidden_states is None or memory.states is None or before is None:
        return
    if scores.hidden_states.untyped_storage().data_ptr() == memory.states.untyped_storage().data_ptr():
        final, *aux = before[:, : len(scores.hidden_states)].unbind()
        step.scores = replace(scores, hidden_states=final, aux_hidden_states=tuple(aux))


def _needs_tokens(sequence: Sequence) -> bool:
    """Return whether the host needs the tokens, or the logits, of one step of a request before the next one."""
    listed = sequence.logprobs
    is_read_later = listed is not None and listed.num_few < 0
    return sequence.rules is not None or sequence.expected is not None or is_read_later


def needs_tokens_to_draft(sequence: Sequence) -> bool:
    """Return whether what may be drafted for a request depends on its tokens on the host."""
    return sequence.expected is not None or (
        sequence.rules is not None and sequence.rules.grammar is not None
    )
