"""The engine: one step of the verify loop per call of `step`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from collections.abc import Sequence as Ids
from dataclasses import replace
from itertools import compress, pairwise
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from specdec.engine.checks import check_verdict
from specdec.engine.commit import Committer, first_node_slots
from specdec.engine.containment import contain, output_of
from specdec.engine.draft_rows import constrain, with_expected
from specdec.engine.metrics import EngineMetrics
from specdec.engine.request import Request
from specdec.engine.scheduler import Scheduler, SchedulerOutput
from specdec.engine.sequence import Sequence
from specdec.engine.speculation.check_draft import select_rows
from specdec.engine.speculation.speculation import Speculation
from specdec.errors import ConfigError, described, is_interrupt, line_of
from specdec.interfaces.draft import CheckedDraft
from specdec.interfaces.draft_depth import MeasuredStep
from specdec.interfaces.finish import FinishReason
from specdec.interfaces.observer import RequestStats, StepStats
from specdec.interfaces.once import ONCE
from specdec.interfaces.proposer import Proposer
from specdec.interfaces.sampler import Sampler, Verdict, VerifyBatch
from specdec.interfaces.scorer import Scorer, Scores
from specdec.interfaces.sent import Along
from specdec.interfaces.unread import UnreadIds
from specdec.outputs import RequestOutput
from specdec.registry.undisturbed import undisturbed
from specdec.samplers.paths import sound_rows

if TYPE_CHECKING:
    import pluggy

logger = logging.getLogger("specdec")


class Launched(NamedTuple):
    """A step that is scheduled, drafted and scored."""

    scheduled: SchedulerOutput
    draft: CheckedDraft
    unread: UnreadIds | None
    """The proposer's ids that the host has not read."""
    batch: VerifyBatch
    scores: Scores
    spans: list[float]
    """Seconds of scheduling, proposing and scoring, then of verifying and committing."""
    read: Callable[[], Verdict] | None = None
    """Waits for its verification, if that has begun."""


class Engine:
    """Runs requests to their end.

    Args:
        scorer: the loaded target.
        sampler: verifies drafts.
        scheduler: chooses what runs.
        committer: applies verdicts.
        speculation: drives the proposer; None without one.
        observers: observer hooks to call, or None if there are none.
    """

    def __init__(
        self,
        scorer: Scorer,
        sampler: Sampler,
        scheduler: Scheduler,
        committer: Committer,
        speculation: Speculation | None,
        observers: pluggy.HookRelay | None,
    ) -> None:
        self._scorer = scorer
        self._sampler = sampler
        self._scheduler = scheduler
        self.reset_prefix_cache = scheduler.reset_prefix_cache
        self._committer = committer
        self._speculation = speculation
        self._observers = observers
        self._device = scorer.cache.device
        self._requests: dict[str, Request] = {}
        self._owners: dict[Sequence, Request] = {}
        self._row_ids: set[str] = set()
        self._ended: list[Sequence] = []
        self.metrics = EngineMetrics() if speculation is None else speculation.metrics
        self.last_step: StepStats | None = None

    @property
    def has_work(self) -> bool:
        """Whether any request is unfinished."""
        return self._scheduler.has_work

    @property
    def proposer(self) -> Proposer | None:
        """The proposer; None without speculation."""
        return None if self._speculation is None else self._speculation.guard.proposer

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
            sequence.row_id = self._free_row_id(sequence.request_id)
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
            self._tell_finished(request, outputs[-1])
        try:
            self._finish(dropped, FinishReason.ABORT)  # last: it may raise
        finally:
            self._finish_last()
        return outputs

    def step(self) -> list[RequestOutput]:
        """Schedule, propose, score, verify, commit; returns the outputs of requests that ended or stream."""
        step = self._launch(self._scheduler.schedule)
        kept, started = self._commit(step), perf_counter() - ONCE.seconds
        outputs = self._show(step.scheduled, kept)
        step.spans[-1] += perf_counter() - ONCE.seconds - started
        self._observe(step, kept)
        return outputs

    def _launch(self, schedule: Callable[[], SchedulerOutput]) -> Launched:
        """Schedule, propose and score."""
        times = [perf_counter() - ONCE.seconds]
        scheduled = schedule()
        times.append(perf_counter() - ONCE.seconds)
        draft, unread = self._propose(scheduled)
        times.append(perf_counter() - ONCE.seconds)
        speculation = self._speculation
        num_top_k = 0 if speculation is None or speculation.is_suspended else speculation.delivery.num_top_k
        batch = _verify_batch(scheduled, draft, num_top_k)
        if self._device.type != "cpu":  # which shares the host's memory: nothing is sent
            along = self._sampler.ahead(batch, self._device) or Along()
            if draft.parents is not None:
                along.add("paths", [first_node_slots(scheduled)])
            scheduled.along, batch = along, replace(batch, along=along)
        scores = self._scorer.score(scheduled, draft)
        scores = scores if self._sampler.takes_any_rows else sound_rows(scores)
        times.append(perf_counter() - ONCE.seconds)
        return Launched(scheduled, draft, unread, batch, scores, [b - a for a, b in pairwise(times)])

    def _commit(self, step: Launched) -> Verdict:
        """Verify and commit; returns what was kept."""
        times, (scheduled, draft, unread, batch, scores, spans, read) = [perf_counter() - ONCE.seconds], step
        verdict = self._sampler.verify(scores, batch) if read is None else read()
        verdict = check_verdict(verdict, batch, scores, self._sampler.name)
        if self._speculation is not None and unread is not None:
            self._speculation.guard.judge(unread)
        times.append(perf_counter() - ONCE.seconds)
        kept = self._committer.commit(scheduled, draft, batch, scores, verdict)
        times.append(perf_counter() - ONCE.seconds)
        spans += [b - a for a, b in pairwise(times)]
        return kept

    def _propose(self, scheduled: SchedulerOutput) -> tuple[CheckedDraft, UnreadIds | None]:
        """Deliver new tokens to the proposer; return its draft, or the expected tokens, for the sequences that sample.

        And the proposer's ids that the host has not read yet, which expected tokens or a grammar may take from the draft.
        """
        self.metrics.num_preemptions += len(scheduled.preempted)
        speculation = self._speculation
        if speculation is None:
            draft = CheckedDraft.empty(len(scheduled.decoding))
        else:
            if speculation.delivery.needs_hidden:
                for sequence in scheduled.preempted:
                    if sequence not in scheduled.sequences:  # else it restarts from its new place
                        speculation.delivery.forget(sequence)
            limits = [0 if i in scheduled.expected else most for i, most in enumerate(scheduled.max_nodes)]
            proposed = speculation.propose(
                scheduled.sequences, limits, ended=self._ended, chunks=scheduled.chunks
            )
            is_whole = len(proposed.rows) == len(scheduled.decoding)
            draft = proposed if is_whole else select_rows(proposed, scheduled.decoding)
        if self._ended:
            self._finish_ended()
        unread, decoding = draft.unread, [scheduled.sequences[index] for index in scheduled.decoding]
        if scheduled.expected:
            draft = with_expected(draft, scheduled)
        if any(s.rules is not None and s.rules.grammar is not None for s in decoding):
            draft = constrain(draft, decoding)
        return draft, unread

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

    def _free_row_id(self, name: str) -> str:
        """Return an unused row id: an ended request keeps its row until its last tokens are delivered."""
        free, number = name, 1
        while free in self._row_ids:
            number += 1
            free = f"{name}~{number}"
        return free

    def _show(self, scheduled: SchedulerOutput, kept: Verdict) -> list[RequestOutput]:
        """Remove ended samples; return the outputs of requests that ended or stream."""
        now = perf_counter()
        decoding = [scheduled.sequences[index] for index in scheduled.decoding]
        touched: dict[str, Request] = {}
        for sequence, emitted in zip(decoding, kept.token_ids, strict=True):
            if not emitted:
                continue  # its step failed, or is repeated without a draft
            if sequence.first_token_time is None:
                sequence.first_token_time = now
            else:
                self.metrics.count_time_between_tokens(now - sequence.last_token_time)
            sequence.last_token_time = now
        for sequence in compress(scheduled.sequences, scheduled.chunks):
            request = self._owners[sequence]
            is_finished = sequence.finish_reason is not None
            if is_finished or (request.is_streaming and sequence.last_token_time == now):
                self._read(sequence)
                touched[request.request_id] = request
        outputs = [output_of(r) for r in touched.values() if r.is_finished or r.is_streaming]
        finished = [s for r in touched.values() for s in r.sequences if s.is_finished and s in self._owners]
        failed = [sequence for sequence in finished if sequence not in decoding]
        if finished:
            self._scheduler.remove(finished)
            self._ended += [sequence for sequence in finished if sequence in decoding]
            self._forget(failed)
        for output in outputs:
            if output.finished:
                self._tell_finished(self._requests.pop(output.request_id), output)
        if failed:
            self._finish(failed, FinishReason.ERROR)
        self._finish_last()
        return outputs

    def _finish_last(self) -> None:
        """Deliver and finish what ended, if no step follows."""
        if self._ended and not self._scheduler.has_work:
            if self._speculation is not None:
                self._speculation.deliver_last(self._ended)
            self._finish_ended()

    def _read(self, sequence: Sequence) -> None:
        """Bring a sample's text up to date."""
        try:
            sequence.stop_checker.read(sequence)
        except BaseException as error:
            contain(sequence, "decoding its text", error)

    def _tell_finished(self, request: Request, output: RequestOutput) -> None:
        if self._observers is None:
            return
        metrics = output.metrics
        for sequence in request.sequences:
            assert sequence.finish_reason is not None
            stats = RequestStats(
                request_id=sequence.request_id,
                num_prompt_tokens=sequence.num_prompt_tokens,
                num_output_tokens=sequence.num_output_tokens,
                num_drafts=sequence.drafts.num_drafts,
                num_draft_tokens=sequence.drafts.num_draft_tokens,
                num_accepted_tokens=sequence.drafts.num_accepted_tokens,
                time_to_first_token_ms=1e3 * (metrics.time_to_first_token or 0.0),
                total_ms=1e3 * metrics.total_time,
                finish_reason=sequence.finish_reason,
            )
            self._tell(self._observers.specdec_request_finished, stats)

    def _tell(self, hook: pluggy.HookCaller, stats: StepStats | RequestStats) -> None:
        """Call each observer, the last registered first; an exception is counted, and logged once."""
        for observer in reversed(hook.get_hookimpls()):
            try:
                _, changed = undisturbed(observer.function, *[stats] * len(observer.argnames))
                problem = f"changed {', '.join(changed)}, which is put back" if changed else None
            except BaseException as error:
                if is_interrupt(error):
                    raise
                problem = f"raised {described(error)}{line_of(error)}"
            if problem is not None:
                self.metrics.observer_errors += 1
                if self.metrics.observer_errors == 1:
                    logger.error(
                        "observer %s %s; output is not affected, this is logged once and counted",
                        observer.plugin_name, problem,
                    )  # fmt: skip

    def _observe(self, step: Launched, kept: Verdict) -> None:
        scheduled, draft, spans = step.scheduled, step.draft, step.spans
        chunks = [scheduled.chunks[index] for index in scheduled.decoding]
        drafted = [len(row) * (chunk > 0) for row, chunk in zip(draft.rows, chunks, strict=True)]
        num_accepted = list(map(len, kept.accepted_nodes))
        num_prompt_tokens = sum(scheduled.chunks) - sum(map(bool, chunks))
        all_sample = len(scheduled.decoding) == len(scheduled.sequences)
        names = draft.proposers or [""] * len(drafted)
        for name, count, accepted in zip(names, drafted, num_accepted, strict=True):
            self.metrics.count_draft(name, count, accepted)
        stats = StepStats(
            len(scheduled.sequences),
            num_prompt_tokens,
            sum(1 for count in drafted if count),
            sum(drafted),
            sum(num_accepted),
            sum(map(len, kept.token_ids)),
            *(1e3 * span for span in spans),
        )
        self.last_step = stats
        self.metrics.count_step(stats)
        expected = next((s.expected for s in scheduled.sequences if s.expected is not None), None)
        if expected is not None and all_sample and not num_prompt_tokens:
            expected.observe_step(len(drafted), sum(drafted), sum(spans))
        if self._speculation is not None:
            # On a GPU, the verdict waits for the pass.
            self._speculation.guard.observe_target(spans[2] + spans[3])
            # Rows of expected tokens cost time, and say nothing about the proposer's drafts.
            if self._speculation.is_measured and not scheduled.expected:
                self._speculation.observe(
                    MeasuredStep(
                        [scheduled.sequences[index] for index in scheduled.decoding],
                        [scheduled.max_nodes[index] for index in scheduled.decoding],
                        drafted,
                        num_accepted,
                        propose_s=spans[1],
                        other_s=sum(spans) - spans[1],
                        num_prompt_rows=num_prompt_tokens if all_sample else None,
                        num_rows=sum(scheduled.chunks) + sum(drafted),
                    )
                )
        if self._observers is not None:
            self._tell(self._observers.specdec_step_finished, stats)


def _verify_batch(scheduled: SchedulerOutput, draft: CheckedDraft, num_top_k: int) -> VerifyBatch:
    sequences = [scheduled.sequences[index] for index in scheduled.decoding]
    return VerifyBatch(
        nodes=draft.rows,
        num_tokens=[sequence.num_tokens for sequence in sequences],
        seeds=[sequence.seed for sequence in sequences],
        sample_indices=[sequence.sample_index for sequence in sequences],
        sampling_params=[sequence.params for sequence in sequences],
        parents=draft.parents,
        drawn=draft.drawn,
        num_logprobs=[-1 if s.logprobs is None else s.logprobs.num_few for s in sequences],
        num_top_k=num_top_k,
        unread=draft.unread,
    )
