"""The engine: one step of the verify loop per call of `step`."""

from __future__ import annotations

import logging
from collections.abc import Sequence as Ids
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING

from specdec.engine.commit import Committer, first_node_slots
from specdec.engine.containment.sample import contain, output_of
from specdec.engine.containment.verdict import check_verdict
from specdec.engine.late_drafts import LateDrafts
from specdec.engine.metrics import EngineMetrics
from specdec.engine.observers import Observers
from specdec.engine.request import Request
from specdec.engine.scheduler import Scheduler
from specdec.engine.sequence import Sequence, free_name
from specdec.engine.speculation.speculation import Speculation
from specdec.engine.step import Step
from specdec.engine.steps_ahead import StepsAhead, begin_to_verify
from specdec.errors import ConfigError
from specdec.interfaces.finish import FinishReason
from specdec.interfaces.observer import StepStats
from specdec.interfaces.proposer import Proposer
from specdec.interfaces.sampler import Sampler, Verdict
from specdec.interfaces.scorer import Scorer
from specdec.interfaces.sent import Transfer
from specdec.interfaces.unread import NeedsTokens
from specdec.outputs import RequestOutput
from specdec.samplers.paths import valid_rows

if TYPE_CHECKING:
    import pluggy

logger = logging.getLogger("specdec")


class Engine:
    """Runs requests to their end.

    Args:
        scorer: the loaded target.
        sampler: verifies drafts.
        scheduler: chooses what runs.
        committer: applies verdicts.
        speculation: drives the proposer; None without one.
        observers: observer hooks to call, or None if there are none.
        is_overlapped: whether a step is launched as early as its needs allow, so that a device runs it while the host does the
            rest of the step before it. Texts are the same.
    """

    def __init__(
        self,
        scorer: Scorer,
        sampler: Sampler,
        scheduler: Scheduler,
        committer: Committer,
        speculation: Speculation | None,
        observers: pluggy.HookRelay | None,
        *,
        is_overlapped: bool = False,
    ) -> None:
        self._scorer = scorer
        self._sampler, self._scheduler = sampler, scheduler
        self.reset_prefix_cache = scheduler.reset_prefix_cache
        self._committer, self._speculation = committer, speculation
        self._device = scorer.cache.device
        self._has_device_nodes = scorer.supports_device_nodes and self._device.type != "cpu"
        self._is_cut = not sampler.cuts(self._device)
        """Whether the sampler needs logits that top-k and top-p have cut."""
        self._requests: dict[str, Request] = {}
        self._owners: dict[Sequence, Request] = {}
        self._row_ids: set[str] = set()
        self._ended: list[Sequence] = []
        self.metrics = EngineMetrics() if speculation is None else speculation.metrics
        self._observers = None if observers is None else Observers(observers, self.metrics)
        self._is_overlapped = is_overlapped
        self._counting_s = 0.0
        """Seconds that the last step was counted for, a part of the next one; 0 where a device runs that meanwhile."""
        self._launched: Step | None = None
        """The next step, if it is launched."""
        self._last: Step | None = None
        """The last step, committed; what it held of the device is let go."""
        self._late = LateDrafts.of(speculation) if is_overlapped else None
        """None where no proposer can be asked late."""
        self._lines = None if speculation is None else speculation.lines
        self._ahead = StepsAhead(scorer, scheduler, speculation, self._late)
        self._problem: tuple[Exception, list[Sequence]] | None = None
        """What kept the next step of these sequences from being launched; told after the outputs of the one before."""

    @property
    def last_step(self) -> StepStats | None:
        """What the last step did and took; None before the first one."""
        return None if self._last is None else self._last.stats()

    @property
    def has_work(self) -> bool:
        """Whether any request is unfinished."""
        return self._scheduler.has_work

    @property
    def proposer(self) -> Proposer | None:
        """The proposer; None without speculation."""
        return None if self._speculation is None else self._speculation.proposer

    @property
    def num_sequences(self) -> tuple[int, int]:
        """Number of running samples and number of waiting samples."""
        return len(self._scheduler.running), self._scheduler.waiting.num_samples

    @property
    def kv_cache_usage(self) -> float:
        """Fraction of the target's KV cache that belongs to samples, 0 to 1."""
        return self._scheduler.kv_cache_usage

    @property
    def num_waiting_requests(self) -> int:
        """Number of requests of which no sample has started."""
        return sum(request.is_waiting for request in list(self._requests.values()))

    def add(self, request: Request) -> None:
        """Queue a request.

        Raises:
            ConfigError: if it does not fit into the cache, or its id is in use.
        """
        if request.request_id in self._requests:
            raise ConfigError(f"request id {request.request_id!r} is in use")
        for sequence in request.sequences:
            self._scheduler.add(sequence)
            self._owners[sequence] = request
            sequence.row_id = free_name(sequence.request_id, self._row_ids)
            self._row_ids.add(sequence.row_id)
        self._requests[request.request_id] = request

    def abort(self, request_ids: Ids[str]) -> list[RequestOutput]:
        """Abort requests at once; the proposer must not learn from them. Unknown ids are ignored."""
        outputs, dropped = [], list[Sequence]()
        for request_id in request_ids:
            request = self._requests.get(request_id)
            if request is None:
                continue
            undelivered = [sequence for sequence in self._ended if sequence in request.sequences]
            # Samples that ended in a step that then raised count as running, whatever their finish reason.
            running = [s for s in request.sequences if s in self._owners and s not in undelivered]
            for sequence in running:
                sequence.finish_reason = FinishReason.ABORT
                self._read(sequence)
            outputs.append(output_of(request))
            self._ended = [sequence for sequence in self._ended if sequence not in undelivered]
            self._scheduler.remove(running)
            self._forget(running + undelivered)
            dropped += running + undelivered
            del self._requests[request_id]
            if self._observers is not None:
                self._observers.request_finished(request, outputs[-1])
        try:
            self._finish(dropped, FinishReason.ABORT)  # last: it may raise
        finally:
            if self._ended and not self._scheduler.has_work:
                self._finish_last()
        return outputs

    def step(self) -> list[RequestOutput]:
        """Schedule, propose, score, verify, commit; returns the outputs of requests that ended or stream.

        With overlapped steps the next one is launched as soon as nothing that it needs is missing: before the verdict of this
        one is read, or once it is committed, before texts and outputs are made of it, unless a request has ended.
        """
        try:
            if self._is_overlapped:
                return self._overlapped_step()
            step = self._launch(self._scheduler.schedule())
            self._commit(step)
            outputs = self._show(step)
            self._count(step)
            self._counting_s = step.lap()
        except BaseException:
            if self._lines is not None:
                self._lines.invalidate()
            raise
        return outputs

    def _overlapped_step(self) -> list[RequestOutput]:
        """Run a step, and launch the next one as soon as nothing that it needs is missing."""
        # What kept this step from being launched by the last call, whose outputs had to be returned first.
        problem, self._problem = self._problem, None
        if problem is not None and not set(problem[1]).isdisjoint(self._scheduler.running):
            raise problem[0]
        # Requests may have been aborted since the step was launched; a step of which nothing is left is not read.
        step, self._launched = self._launched, None
        if step is None or not step.leave(self._scheduler.running):
            step = self._launch(self._scheduler.schedule())
        after = self._launch_before_verdict(step)
        verdict = self._commit(step)
        if after is not None and after.behind is not None:
            after.settle(step, verdict.num_accepted)
        self._launched = following = None if after is None or after.waits else after
        if following is None and not any(row.chunk and row.sequence.is_finished for row in step.rows):
            # What `adaptive` decides of the next step depends on this one, whose text can wait until the device has that.
            self._count(step)
            self._launched = following = self._launch_behind_commit(after)
            outputs = self._show(step)
            if following is not None:
                following.commit_s += following.lap()  # it ran meanwhile
        else:
            outputs = self._show(step)
            self._count(step)
        if not self._scheduler.has_work:
            self._launched = None
        return outputs

    def _launch(self, step: Step) -> Step:
        """Draft for a scheduled step and run the target; verification begins, if that does not wait for a device."""
        step.schedule_s += step.lap() + self._counting_s
        lines = self._lines
        if lines is not None and step.behind is None:
            lines.place([row.sequence for row in step.rows])
        self._propose(step)
        step.propose_s += step.lap()
        if step.device_nodes is not None:
            rules = [row.sequence.rules for row in step.sampled]
            if not self._has_device_nodes or any(each is not None and each.reads_drafts for each in rules):
                step.read_nodes()
        # The draft is final: rows have their places in the pass, and the sampler's input is known before the pass runs.
        step.place(is_cut=self._is_cut)
        num_top_k = 0 if self._speculation is None or step.is_suspended else self._speculation.num_top_k
        batch = step.verify_batch(num_top_k, self._scorer.pass_memory, None if lines is None else lines.table)
        if self._device.type != "cpu":  # which shares the host's memory: nothing is sent
            step.transfer = self._sampler.transfer(batch, self._device) or Transfer()
            if batch.has_trees:
                step.transfer.add("paths", [first_node_slots(step)], growing=0)
            batch = replace(batch, transfer=step.transfer)
        scores = self._scorer.score(step)
        step.batch, step.scores = batch, scores if self._sampler.finds_invalid_rows else valid_rows(scores)
        step.score_s += step.lap()
        if self._is_overlapped:
            begin_to_verify(step, self._sampler, self._device)
            step.verify_s += step.lap()
        return step

    def _launch_before_verdict(self, step: Step) -> Step | None:
        """Launch the step after one whose tokens are not read, unless it `waits`; None if they have to be read first."""
        after = None
        try:
            after = self._ahead.make(step, has_ended=bool(self._ended))
            return after if after is None or after.waits else self._launch(after)
        except NeedsTokens:
            if after is not None:
                after.waits = True
            return None if after is None or after.device_nodes is None or after.is_late else after
        except BaseException:
            # Nothing of this step is lost: the next call reads its verdict, and launches none before.
            if step.pending is not None:
                step.is_alone, self._launched = True, step
            raise
        finally:
            self._ahead.find_states(step)

    def _launch_behind_commit(self, drafted: Step | None) -> Step | None:
        """Launch the next step: `drafted`, if all of its samples run next. What prevents that is raised by the next call."""
        try:
            if drafted is not None and self._scheduler.runs_on() and all(row.chunk for row in drafted.rows):
                return self._launch(drafted)
            return self._launch(self._scheduler.schedule())
        except Exception as error:
            self._problem = error, list(self._scheduler.running)
            return None

    def _commit(self, step: Step) -> Verdict:
        """Verify and commit; returns the verdict."""
        scores, batch = step.scores, step.batch
        assert scores is not None and batch is not None
        step.lap()
        if step.device_nodes is not None and not self._sampler.finds_invalid_rows:
            batch = batch.read()  # a sampler of its own looks at the ids
        verdict = self._sampler.verify(scores, batch) if step.pending is None else step.pending.read()
        if step.device_nodes is not None:  # which came with the verdict
            step.read_nodes()
            batch = batch.read()
        verdict = check_verdict(verdict, batch, scores, self._sampler.name)
        if self._speculation is not None and step.num_outside:
            self._speculation.count_invalid_nodes(step.num_outside)
        step.verify_s += step.lap()
        if self._lines is not None and step.has_appended:
            self._lines.take_verdict(step.sampled, verdict.num_accepted)
        self._committer.commit(step, verdict)
        # What these hold is large, and on the device: logits, states, q.
        step.scores = step.batch = step.pending = step.drawn = step.transfer = None
        self._last = step
        step.commit_s += step.lap()
        return verdict

    def _propose(self, step: Step) -> None:
        """Deliver new tokens to the proposer, and take its draft, or the expected tokens, for the rows that are sampled."""
        self.metrics.num_preemptions += len(step.preempted)
        speculation = self._speculation
        if speculation is not None and not step.is_asked:
            if step.preempted:
                running = {row.sequence for row in step.rows}  # those of them restart from their new place
                speculation.forget([sequence for sequence in step.preempted if sequence not in running])
            step.take(speculation.propose(step, self._ended, self._last))
        if self._ended:
            self._finish_ended()
        if any(row.expected for row in step.sampled):
            step.draft_expected()
        if any(
            row.sequence.rules is not None and row.sequence.rules.grammar is not None for row in step.sampled
        ):
            step.constrain()

    def _finish_ended(self) -> None:
        """Finish ended sequences in the proposer, whose last tokens it had its chance to get."""
        ended, self._ended = self._ended, []
        self._forget(ended)
        self._finish(ended)

    def _forget(self, sequences: list[Sequence]) -> None:
        """Drop the engine's state of ended sequences."""
        for sequence in sequences:
            self._owners.pop(sequence, None)
            self._row_ids.discard(sequence.row_id)
            sequence.deliverable_hidden.clear()
            sequence.rules = None  # penalties hold the text, whitelists one number per id of the vocabulary

    def _finish(self, sequences: list[Sequence], reason: FinishReason | None = None) -> None:
        """Finish sequences in the proposer; re-raises its exceptions if `on_proposer_error` is "raise"."""
        if self._speculation is not None:
            self._speculation.finish(sequences, reason)

    def _show(self, step: Step) -> list[RequestOutput]:
        """Remove ended samples; return the outputs of requests that ended or stream."""
        now = perf_counter()
        touched: dict[str, Request] = {}
        failed = list[Sequence]()
        for row in step.rows:
            sequence = row.sequence
            if row.emitted:  # else its step failed, or is repeated without a draft
                if sequence.first_token_time is None:
                    sequence.first_token_time = now
                else:
                    self.metrics.count_time_between_tokens(now - sequence.last_token_time)
                sequence.last_token_time = now
            if row.chunk:
                request = self._owners[sequence]
                if sequence.finish_reason is not None or (request.is_streaming and row.emitted):
                    self._read(sequence)
                    touched[request.request_id] = request
        outputs = [output_of(r) for r in touched.values() if r.is_finished or r.is_streaming]
        finished = [s for r in touched.values() for s in r.sequences if s.is_finished and s in self._owners]
        if finished:
            sampled = {row.sequence for row in step.sampled}
            failed = [sequence for sequence in finished if sequence not in sampled]
            self._scheduler.remove(finished)
            self._ended += [sequence for sequence in finished if sequence in sampled]
            self._forget(failed)
        for output in outputs:
            if output.finished:
                ended = self._requests.pop(output.request_id)
                if self._observers is not None:
                    self._observers.request_finished(ended, output)
        if failed:
            self._finish(failed, FinishReason.ERROR)
        if self._ended and not self._scheduler.has_work:
            self._finish_last()
        step.commit_s += step.lap()
        return outputs

    def _finish_last(self) -> None:
        """Deliver and finish what ended, as no step follows the last one."""
        if self._speculation is not None:
            self._speculation.deliver_last(
                self._ended, is_suspended=self._last is None or self._last.is_suspended
            )
        self._finish_ended()

    def _read(self, sequence: Sequence) -> None:
        """Bring a sample's text up to date."""
        try:
            sequence.stop_checker.read(sequence)
        except BaseException as error:
            contain(sequence, "decoding its text", error)

    def _count(self, step: Step) -> None:
        """Count a step in the metrics, and tell it to `adaptive` and to observers."""
        self.metrics.count_step(step)
        is_plain = step.num_prompt_tokens == 0 and len(step.sampled) == len(step.rows)
        expected = next((r.sequence.expected for r in step.rows if r.sequence.expected is not None), None)
        if expected is not None and is_plain:
            expected.observe_step(len(step.sampled), step.num_drafted, step.seconds)
        if self._speculation is not None:
            # A cheap proposer that found nothing, or expected tokens, say nothing about its drafts.
            is_cheap = self._late is not None and self._late.observe(step)
            if is_cheap or any(row.expected for row in step.rows):
                step.is_measured = False
            self._speculation.observe(step)
        if self._observers is not None:
            self._observers.step_finished(step.stats())
