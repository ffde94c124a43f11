"""Steps that are made before the verdict on the last one is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.engine.step_behind import keep_states, needs_tokens_to_draft, states_behind, step_behind
from specdec.interfaces.async_verdict import AsyncVerdict

if TYPE_CHECKING:
    from specdec.engine.late_drafts import LateDrafts
    from specdec.engine.scheduler import Scheduler
    from specdec.engine.speculation.speculation import Speculation
    from specdec.engine.step import Step
    from specdec.interfaces.scorer import Scorer


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
        memory = self._scorer.pass_memory
        if memory is not None and memory.num_passes > self._num_passes:
            states_behind(step, memory)

    def _with_drafts(self, step: Step, speculation: Speculation) -> Step | None:
        """Return the step after one whose drafts are not read, with what the proposer drafts behind these on the device."""
        is_there = step.verdict is not None if speculation.lines is None else step.has_appended
        if not is_there or not speculation.drafts_before_verdict or not self._scheduler.runs_on():
            return None
        after = step_behind(step, self._scheduler.running)
        if after is None or any(needs_tokens_to_draft(row.sequence) for row in after.rows):
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
        cache = self._scorer.cache
        if (
            isinstance(step.pending, AsyncVerdict)
            and step.pending.paths is not None
            and step.transfer is not None
        ):
            (slots,) = step.transfer.on(cache.device, "paths")
            cache.gather(slots, step.pending.paths)
            step.is_compacted = True
        return True
