"""Steps that are made before the verdict on the last one is read: their rows take its tokens on the device."""

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
    from specdec.engine.late_drafts import LateDrafts
    from specdec.engine.scheduler import Scheduler
    from specdec.engine.speculation.speculation import Speculation
    from specdec.interfaces.sampler import Sampler, Verdict, VerifyBatch
    from specdec.interfaces.scorer import Scorer, Scores


class StepsAhead:
    """Makes the step after one whose tokens the host has not read, if nothing on the host needs them.

    Args:
        scorer: the loaded target.
        scheduler: knows what runs.
        speculation: drives the proposer; None without one.
        late: asks the proposer late; None if it never is.
    """

    def __init__(
        self,
        scorer: Scorer,
        scheduler: Scheduler,
        speculation: Speculation | None,
        late: LateDrafts | None,
    ) -> None:
        self._scorer, self._scheduler, self._speculation, self._late = scorer, scheduler, speculation, late
        self._num_passes = 0
        """Recorded passes of the target until the last step was made."""

    def make(self, step: Step, *, has_ended: bool) -> Step | None:
        """Return the next step, to be launched unless it `waits`; None if the host has to read the tokens first.

        Args:
            step: the last one, launched.
            has_ended: whether the proposer still has to be told of samples that ended.
        """
        speculation, memory = self._speculation, self._scorer.pass_memory
        self._num_passes = 0 if memory is None else memory.num_passes
        if speculation is not None and has_ended:
            return None
        if speculation is not None and (step.device_nodes is not None or speculation.drafts_before_verdict):
            after = self._with_drafts(step, speculation)
            if after is not None or step.device_nodes is not None:
                return after
        after = step_behind(step, self._scheduler.running)
        if after is None or after.waits:
            return None
        if speculation is None or speculation.skips_proposer(after):
            if any(row.num_nodes or (row.cap and self._late is None) for row in step.rows):
                return None
            keep_states(step)
            for row in after.rows:
                row.cap = 0
        elif (
            self._late is None
            or after.is_paused
            or not self._scheduler.runs_on()
            or not self._late.pays(step)
        ):
            return None  # who drafts for it needs the tokens that are not read
        else:
            after.is_asked = after.is_late = True
            after.schedule_s += after.lap()
            draft = self._late.draft(after, step)
            after.propose_s += after.lap()
            if draft is not None:
                after.take(draft)
        return after if self._reserve(after, step) else None

    def find_states(self, step: Step) -> None:
        """Find the states of a step where the pass of the one after it has put them, if that has run; also where it raised."""
        memory, scores = self._scorer.pass_memory, step.scores
        if memory is None or memory.num_passes == self._num_passes or memory.states is None:
            return
        before, storage = memory.states_before, memory.states.untyped_storage().data_ptr()
        if scores is None or scores.hidden_states is None or before is None:
            return
        if scores.hidden_states.untyped_storage().data_ptr() == storage:
            final, *aux = before[:, : len(scores.hidden_states)].unbind()
            step.scores = replace(scores, hidden_states=final, aux_hidden_states=tuple(aux))

    def _with_drafts(self, step: Step, speculation: Speculation) -> Step | None:
        """Return the step after one whose drafts are not read, with what the proposer drafts behind these on the device."""
        is_there = step.verdict is not None if speculation.lines is None else step.has_appended
        if not is_there or not speculation.drafts_before_verdict or not self._scheduler.runs_on():
            return None
        after = step_behind(step, self._scheduler.running)
        if after is None or (after.waits and any(needs_tokens_to_draft(row.sequence) for row in after.rows)):
            return None
        after.schedule_s += after.lap()
        draft = speculation.draft_behind(after)
        after.propose_s += after.lap()
        if draft is None:
            return None
        after.is_asked = True
        after.take(draft)
        return after if self._reserve(after, step) else None

    def _reserve(self, after: Step, step: Step) -> bool:
        """Reserve the next step's rows; accepted paths of trees of the last one move to where its pass looks for them."""
        if not self._scheduler.reserve_next(after):
            return False
        if step.pending is not None and step.pending.paths is not None and step.transfer is not None:
            cache = self._scorer.cache
            (slots,) = step.transfer.on(cache.device, "paths")
            cache.gather(slots, step.pending.paths)
            step.is_compacted = True
        return True


def begin_to_verify(step: Step, sampler: Sampler, device: torch.device) -> None:
    """Begin to verify a scored step, unless that waits for the device."""
    scores, batch = step.scores, step.batch
    assert scores is not None and batch is not None
    if device.type != "cpu":
        pending = sampler.begin(scores, batch)
    else:
        pending = _at_once(sampler.verify(scores, batch), scores, batch)
    if pending is not None:
        has_nodes = step.device_nodes is not None and any(step.device_nodes.num_nodes)
        step.pending, step.has_appended = pending, pending.has_appended
        step.verdict = pending.offsets if has_nodes else None


def _at_once(verdict: Verdict, scores: Scores, batch: VerifyBatch) -> AsyncVerdict | None:
    """Return a verdict of the host as one of a device; None if it does not belong to its batch."""
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
    if pending is None or last.is_alone or scores is None or scores.prompt_logits is not None:
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
