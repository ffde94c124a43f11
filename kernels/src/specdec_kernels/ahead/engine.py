"""An engine whose device has the next step to run while the host does the rest of a step."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch

from specdec import RequestOutput
from specdec.engine import Engine, Launched, SchedulerOutput, Sequence, problem_of
from specdec.interfaces import ONCE, CheckedDraft, UnreadIds, Verdict
from specdec.samplers import TorchSampler
from specdec_kernels.ahead.following import FollowingStep, with_own_states
from specdec_kernels.ahead.late_looks import LateLooks
from specdec_kernels.ahead.leaving import PromptRows, leave
from specdec_kernels.begun import Begins, Begun


class AheadEngine(Engine):
    """Launches a step as early as the texts allow it; they are those of `Engine`.

    A step without drafts is launched before the tokens of the step before it are read, where nothing on the host needs them
    (`FollowingStep`): its rows take them on the device. `LateLooks` decides whether that may be a step for which the proposer
    could have drafted. Any other step is launched as soon as those tokens are committed, before text and outputs are made of
    them, unless a request has ended. Requests that end, or are aborted, while a step with rows of theirs is launched leave it
    (`leave`).

    Args:
        *parts: see `Engine`.
    """

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._next: Launched | None = None
        """The next step, if it is launched."""
        self._prompt_rows: PromptRows = []
        """Of the step that was launched last."""
        self._shown_s = 0.0
        """Seconds in which the last text was made while the next step ran, which that step counts."""
        self._looks = LateLooks.of(self._speculation)
        """None where no proposer can be asked late."""
        self._is_late = False
        """Whether a step is being launched without asking the proposer."""
        self._problem: tuple[Exception, list[Sequence]] | None = None
        """What kept the next step of these sequences from being launched; told after the outputs of the one before."""

    def step(self) -> list[RequestOutput]:
        """See `Engine.step`."""
        problem, self._problem = self._problem, None
        if problem is not None and not set(problem[1]).isdisjoint(self._scheduler.running):
            raise problem[0]
        step, self._next = self._next, None
        if step is not None:
            step = leave(step, self._scheduler.running, self._prompt_rows)
        step = step or self._launch(self._scheduler.schedule)
        after = FollowingStep.of(step, may_draft=self._looks is not None)
        if after is not None:  # the next pass may begin before this one is committed
            step = with_own_states(step)
        try:
            following = None if after is None else self._launch_after(step, after)
        except BaseException:
            if isinstance(
                step.read, Begun
            ):  # nothing of it is lost: the next call reads it, and launches none before
                self._next = step._replace(read=step.read.read)
            raise
        kept = self._commit(step)
        if after is not None and self._speculation is not None:
            self._speculation.delivery.overwritten = 0  # what it kept of this step are copies
        step.spans[-1] += self._shown_s
        self._next, self._shown_s = following, 0.0
        is_next = following is None and not any(s.is_finished for s in step.scheduled.sequences)
        if is_next:  # what `adaptive` decides of it depends on this one
            self._observe(step, kept)
            try:
                self._next = self._launch(self._scheduler.schedule)
            except Exception as error:
                self._problem = error, list(self._scheduler.running)
        started = perf_counter() - ONCE.seconds
        outputs = self._show(step.scheduled, kept)
        shown_s = perf_counter() - ONCE.seconds - started
        if is_next:
            self._shown_s = shown_s
        else:
            step.spans[-1] += shown_s
            self._observe(step, kept)
        if not self.has_work:
            self._next = None
        return outputs

    def _launch(self, schedule: Callable[[], SchedulerOutput]) -> Launched:
        """See `Engine._launch`; begins to verify."""
        step = super()._launch(schedule)
        started = perf_counter() - ONCE.seconds
        scheduled = step.scheduled
        self._prompt_rows = []
        if step.scores.prompt_logits is not None:
            rows = zip(scheduled.sequences, scheduled.chunks, strict=True)
            self._prompt_rows = [len(sequence.missing_prompt_rows(chunk)) for sequence, chunk in rows]
        step = step._replace(read=self._begun(step))
        step.spans[-1] += perf_counter() - ONCE.seconds - started
        return step

    def _begun(self, step: Launched) -> Begun | None:
        """Begin to verify a step; None where that waits for the device."""
        problem, sampler = (step.scores, step.batch), self._sampler
        if self._device.type == "cpu":
            verdict = sampler.verify(*problem)
            if problem_of(verdict, step.batch, step.scores.logits.shape[1]) is not None:
                return None
            return Begun(torch.tensor([row[:1] for row in verdict.token_ids]), lambda: verdict)
        if not isinstance(sampler, TorchSampler) or not sampler.takes_any_rows:
            return None
        fast: object = sampler.fast_on(self._device)
        return fast.begin(*problem) if isinstance(fast, Begins) else None

    def _launch_after(self, step: Launched, following: FollowingStep) -> Launched | None:
        """Launch the step after one whose tokens are not read; None if they have to be read first."""
        speculation, running = self._speculation, self._scheduler.running
        with following.as_if_committed():
            if self._ended and speculation is not None:
                return None
            if not following.may_run(self._scheduler):
                return None
            if speculation is None or speculation.rests(running):
                return self._launch(following.schedule)
        if self._looks is None:
            return None
        started = perf_counter() - ONCE.seconds
        is_for_nothing = self._looks.has_nothing(step, running) and self._looks.pays(step)
        step.spans[1] += perf_counter() - ONCE.seconds - started
        if not is_for_nothing:
            return None
        with following.as_if_committed():
            self._is_late = True
            try:
                launched = self._launch(following.schedule)
            finally:
                self._is_late = False
        self._looks.mark(launched)
        return launched

    def _propose(self, scheduled: SchedulerOutput) -> tuple[CheckedDraft, UnreadIds | None]:
        """See `Engine._propose`."""
        if self._is_late:
            return CheckedDraft.empty(len(scheduled.decoding)), None
        return super()._propose(scheduled)

    def _observe(self, step: Launched, kept: Verdict) -> None:
        """See `Engine._observe`. That a proposer found nothing tells `adaptive` nothing where it hardly costs time."""
        speculation = self._speculation
        if speculation is None or self._looks is None or not self._looks.observe(step, kept):
            super()._observe(step, kept)
            return
        is_measured, speculation.is_measured = speculation.is_measured, False
        super()._observe(step, kept)
        speculation.is_measured = is_measured
