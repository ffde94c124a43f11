"""The engine: one step of the verify loop per call of `step`."""

from __future__ import annotations

import logging
from collections.abc import Sequence as Ids
from itertools import pairwise
from time import perf_counter
from typing import TYPE_CHECKING

from specdec.engine.check_verdict import check_verdict
from specdec.engine.commit import Committer
from specdec.engine.constrain import constrain
from specdec.engine.containment import Contained, output_of
from specdec.engine.delivery import Delivery
from specdec.engine.guard import ProposerGuard
from specdec.engine.make_proposer import line_of
from specdec.engine.metrics import EngineMetrics
from specdec.engine.pace import Pace
from specdec.engine.plan import Plan
from specdec.engine.proposing import by_reason, propose
from specdec.engine.request import Request
from specdec.engine.sanitize import select_rows
from specdec.engine.scheduler import Scheduler
from specdec.engine.sequence import Sequence
from specdec.engine.soundness import sound_rows
from specdec.engine.stopping import StopWatch
from specdec.engine.undisturbed import undisturbed
from specdec.errors import ConfigError, described, is_interrupt
from specdec.interfaces.capability import Capability
from specdec.interfaces.draft import CheckedDraft
from specdec.interfaces.finish import FinishReason
from specdec.interfaces.observer import RequestStats, StepStats
from specdec.interfaces.proposer import Proposer
from specdec.interfaces.sampler import Sampler, VerifyBatch
from specdec.interfaces.scorer import Scorer
from specdec.outputs import RequestOutput

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
        guard: calls the proposer and contains its failures; None without speculation.
        delivery: builds the proposer's batches; None without speculation.
        observers: observer hooks to call, or None if there are none.
        pace: limits drafts in the scheduler; receives what drafts cost and gain. None without `adaptive`.
    """

    def __init__(
        self,
        scorer: Scorer,
        sampler: Sampler,
        scheduler: Scheduler,
        committer: Committer,
        guard: ProposerGuard | None,
        delivery: Delivery | None,
        observers: pluggy.HookRelay | None,
        pace: Pace | None = None,
    ) -> None:
        self._scorer = scorer
        self._sampler = sampler
        self._scheduler = scheduler
        self._committer = committer
        self._guard = guard
        self._delivery = delivery
        self._observers = observers
        self._pace = pace
        self._is_measured = False  # whether `pace` observes this step: not if the proposer failed
        self._requests: dict[str, Request] = {}
        self._owners: dict[Sequence, Request] = {}
        self._watches: dict[Sequence, StopWatch] = {}
        self._row_ids: set[str] = set()
        self._ended: list[Sequence] = []
        self.metrics = EngineMetrics()
        self.last_step: StepStats | None = None

    @property
    def has_work(self) -> bool:
        """Whether any request is unfinished."""
        return self._scheduler.has_work

    @property
    def proposer(self) -> Proposer | None:
        """The proposer; None without speculation."""
        return None if self._guard is None else self._guard.proposer

    @property
    def num_sequences(self) -> tuple[int, int]:
        """Number of running samples and number of waiting samples."""
        return len(self._scheduler.running), len(self._scheduler.waiting)

    @property
    def kv_cache_usage(self) -> float:
        """Fraction of the target's KV cache that belongs to samples, 0 to 1."""
        return self._scheduler.kv_cache_usage

    @property
    def num_waiting_requests(self) -> int:
        """Number of requests of which no sample has started."""
        return sum(request.is_waiting for request in list(self._requests.values()))

    def add(self, request: Request, watches: list[StopWatch]) -> None:
        """Queue a request.

        Raises:
            ConfigError: if it does not fit into the cache, or its id is in use.
        """
        if request.request_id in self._requests:
            raise ConfigError(f"request id {request.request_id!r} is in use")
        for sequence, watch in zip(request.sequences, watches, strict=True):
            self._scheduler.add(sequence)
            self._owners[sequence] = request
            self._watches[sequence] = watch
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
        self._finish(dropped, FinishReason.ABORT)  # last: it may raise
        return outputs

    def step(self) -> list[RequestOutput]:
        """Schedule, propose, score, verify, commit; returns the outputs of requests that ended or stream."""
        times = [perf_counter()]
        plan = self._scheduler.schedule()
        times.append(perf_counter())
        draft = self._propose(plan)
        times.append(perf_counter())
        scores, is_sound = sound_rows(self._scorer.score(plan, draft))
        times.append(perf_counter())
        batch = _verify_batch(plan, draft)
        verdict = self._sampler.verify(scores, draft, batch)
        verdict = check_verdict(verdict, batch.num_nodes, scores.logits.shape[1], self._sampler.name)
        times.append(perf_counter())
        done = self._committer.commit(plan, draft, scores, verdict, self._watches, is_sound)
        outputs = self._show(plan)
        times.append(perf_counter())
        self._observe(plan, draft, done.num_accepted, done.num_emitted_tokens, times)
        return outputs

    def _propose(self, plan: Plan) -> CheckedDraft:
        """Deliver new tokens to the proposer and return its draft for the sequences that sample."""
        self.metrics.num_preemptions += len(plan.preempted)
        guard, delivery = self._guard, self._delivery
        if guard is None or delivery is None:
            self._finish_ended()
            return CheckedDraft.empty(len(plan.decoding))
        if delivery.needs_hidden:
            for sequence in plan.preempted:
                if not sequence.num_blocks:  # else it has been placed again and restarts from there
                    delivery.forget(sequence)
        self._is_measured = not guard.is_paused
        if guard.is_paused:
            guard.skip()
            delivery.limit_waiting(plan.sequences)
            self._finish_ended()
            return CheckedDraft.empty(len(plan.decoding))
        if self._can_skip_proposer(delivery, plan):
            self._finish_ended()
            return CheckedDraft.empty(len(plan.decoding))
        sequences = plan.sequences + self._ended
        max_nodes = plan.max_nodes + [0] * len(self._ended)
        draft = propose(guard, delivery, sequences, max_nodes)
        self._finish_ended()
        if draft is None:
            self._is_measured = False
            return CheckedDraft.empty(len(plan.decoding))
        return constrain(select_rows(draft, plan.decoding), [plan.sequences[i] for i in plan.decoding])

    def _can_skip_proposer(self, delivery: Delivery, plan: Plan) -> bool:
        """Return whether to skip the proposer: nothing is drafted, and new tokens can be delivered later."""
        if (
            self._pace is None
            or not self._pace.is_suspended
            or delivery.is_overdue(plan.sequences, plan.chunks)
        ):
            return False
        if delivery.is_missing(plan.sequences + self._ended):
            return False
        return not self._ended or self._can_skip_ends(delivery)

    def _can_skip_ends(self, delivery: Delivery) -> bool:
        """Return whether a suspended proposer may miss last tokens: it does not learn from ids alone."""
        assert self._guard is not None
        return delivery.needs_hidden or Capability.OWN_KV in self._guard.capabilities

    def _finish_ended(self) -> None:
        """Finish ended sequences in the proposer, with ERROR if their last tokens were not delivered."""
        ended, self._ended = self._ended, []
        self._forget(ended)
        for reason, sequences in by_reason(ended).items():
            self._finish(sequences, reason)

    def _forget(self, sequences: list[Sequence]) -> None:
        """Drop the engine's state of ended sequences."""
        for sequence in sequences:
            self._owners.pop(sequence, None)
            self._watches.pop(sequence, None)
            self._row_ids.discard(sequence.row_id)
            sequence.deliverable_hidden.clear()
            sequence.rules = None  # penalties hold one number per id of the vocabulary

    def _finish(self, sequences: list[Sequence], reason: FinishReason) -> None:
        """Finish sequences in the proposer; re-raises its exceptions if `on_proposer_error` is "raise"."""
        if self._guard is not None:
            self._guard.finish([s.row_id for s in sequences if s.is_introduced], reason)
            self.metrics.take(self._guard.counters)  # no step may follow

    def _free_row_id(self, name: str) -> str:
        """Return an unused row id: an ended request keeps its row until its last tokens are delivered."""
        free, number = name, 1
        while free in self._row_ids:
            number += 1
            free = f"{name}~{number}"
        return free

    def _show(self, plan: Plan) -> list[RequestOutput]:
        """Remove ended samples; return the outputs of requests that ended or stream."""
        now = perf_counter()
        decoding = [plan.sequences[index] for index in plan.decoding]
        touched: dict[str, Request] = {}
        for sequence in decoding:
            if not sequence.num_output_tokens:
                continue  # its first step failed, or is repeated without a draft
            if sequence.first_token_time is None:
                sequence.first_token_time = now
            else:
                self.metrics.inter_token_latency.observe(now - sequence.last_token_time)
            sequence.last_token_time = now
        for sequence in plan.sequences:
            request = self._owners[sequence]
            if sequence.is_finished or (request.is_streaming and sequence.last_token_time == now):
                self._read(sequence)
                touched[request.request_id] = request
        outputs = [output_of(r) for r in touched.values() if r.is_finished or r.is_streaming]
        finished = [s for r in touched.values() for s in r.sequences if s.is_finished and s in self._owners]
        self._scheduler.remove(finished)
        self._ended += [sequence for sequence in finished if sequence in decoding]
        failed = [sequence for sequence in finished if sequence not in decoding]
        self._forget(failed)
        for output in outputs:
            if output.finished:
                self._tell_finished(self._requests.pop(output.request_id), output)
        self._finish(failed, FinishReason.ERROR)
        if self._ended and not self._scheduler.has_work:
            self._flush()
        return outputs

    def _read(self, sequence: Sequence) -> None:
        """Bring a sample's text up to date."""
        with Contained(sequence, "decoding its text"):
            self._watches[sequence].read()

    def _flush(self) -> None:
        """Deliver the last tokens when no step will follow."""
        guard, delivery = self._guard, self._delivery
        if guard is not None and delivery is not None and not guard.is_paused:
            is_suspended = self._pace is not None and self._pace.is_suspended
            nothing = [0] * len(self._ended)
            can_skip = is_suspended and self._can_skip_ends(delivery)
            if not can_skip or delivery.is_missing(self._ended):
                propose(guard, delivery, self._ended, nothing)
        self._finish_ended()

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
                num_drafts=sequence.num_drafts,
                num_draft_tokens=sequence.num_draft_tokens,
                num_accepted_tokens=sequence.num_accepted_tokens,
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

    def _observe(
        self, plan: Plan, draft: CheckedDraft, num_accepted: list[int], num_emitted: int, times: list[float]
    ) -> None:
        drafted = [len(row) for row in draft.rows]
        for count, accepted in zip(drafted, num_accepted, strict=True):
            self.metrics.count_positions(count, accepted)
        spans = [1e3 * (b - a) for a, b in pairwise(times)]
        stats = StepStats(
            num_requests=len(plan.sequences),
            num_prompt_tokens=plan.num_prompt_tokens,
            num_drafts=sum(1 for count in drafted if count),
            num_draft_tokens=sum(drafted),
            num_accepted_tokens=sum(num_accepted),
            num_emitted_tokens=num_emitted,
            schedule_ms=spans[0],
            propose_ms=spans[1],
            score_ms=spans[2],
            verify_ms=spans[3],
            commit_ms=spans[4],
        )
        self.last_step = stats
        self.metrics.count_step(stats)
        if self._pace is not None and self._is_measured:
            self._pace.observe(
                [plan.sequences[index] for index in plan.decoding],
                [plan.max_nodes[index] for index in plan.decoding],
                drafted,
                num_accepted,
                times[2] - times[1],
                times[-1] - times[2] + times[1] - times[0],
                num_prompt_rows=plan.num_prompt_tokens if plan.all_sample else None,
                num_rows=sum(plan.chunks) + sum(drafted),
            )
            self.metrics.steps_without_drafts = self._pace.num_suspended
            self.metrics.steps_with_shorter_drafts = self._pace.num_shortened
        if self._guard is not None:
            self._guard.observe_target(times[4] - times[2])  # on a GPU, the verdict waits for the pass
            self.metrics.take(self._guard.counters)
        if self._delivery is not None:
            self.metrics.requests_without_states = self._delivery.num_without_states
        if self._observers is not None:
            self._tell(self._observers.specdec_step_finished, stats)


def _verify_batch(plan: Plan, draft: CheckedDraft) -> VerifyBatch:
    sequences = [plan.sequences[index] for index in plan.decoding]
    return VerifyBatch(
        num_nodes=[len(row) for row in draft.rows],
        num_tokens=[sequence.num_tokens for sequence in sequences],
        seeds=[sequence.seed for sequence in sequences],
        sample_indices=[sequence.sample_index for sequence in sequences],
        sampling_params=[sequence.params for sequence in sequences],
        is_all_greedy=all(sequence.params.is_greedy for sequence in sequences),
    )
