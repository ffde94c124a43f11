"""A proposer in the loop of another engine."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection
from collections.abc import Sequence as Ids
from typing import TypeVar

import numpy as np
import torch

from specdec import SamplingParams
from specdec.config import ResolvedSpeculation, with_checked_args
from specdec.engine import Row, Sequence, Speculation, Step
from specdec.interfaces import (
    NEEDED_CAPABILITIES,
    Capability,
    CheckedDraft,
    FinishReason,
    Proposer,
    TargetInfo,
    TokenIds,
)
from specdec.metrics import Counter, Metric, Vector
from specdec.noise import SEED_BITS, signed
from specdec_hosting.host_steps import HostSteps

logger = logging.getLogger("specdec")

T = TypeVar("T")

_GREEDY = SamplingParams(temperature=0.0, max_tokens=None)


class HostedProposer:
    """Drives one proposer for a host: takes requests and their tokens, returns drafts.

    Made by `open_proposer`. In each step the host calls, for each running request, `commit` with the emitted
    tokens and, if `needs_hidden`, `keep_states` with the computed rows; then one `propose` for all of them.
    In-order delivery, redelivery after failures and the guard are the engine's own. Not thread-safe.

    Args:
        resolved: the resolved configuration.
        info: facts about the target.
        speculation: drives the proposer.
        host: name of the engine, for messages.
    """

    def __init__(
        self, resolved: ResolvedSpeculation, info: TargetInfo, speculation: Speculation, host: str
    ) -> None:
        self.resolved = resolved
        self.info = info
        self._host = host
        self._num_failures = 0
        self._speculation = speculation
        self._steps = None if speculation.draft_depth is None else HostSteps(speculation)
        self._sequences: dict[str, Sequence] = {}
        self._metrics = speculation.metrics
        self._step = Step([])
        """The last one."""
        self._random = random.SystemRandom()

    @property
    def proposer(self) -> Proposer:
        """The proposer."""
        return self._speculation.proposer

    @property
    def name(self) -> str:
        """The method's name."""
        return self._speculation.name

    @property
    def num_speculative_tokens(self) -> int:
        """Maximum number of tokens drafted in one step for one request (k)."""
        return self._speculation.num_speculative_tokens

    @property
    def needs_hidden(self) -> bool:
        """Whether `keep_states` must be called with each row that the target computed."""
        return self._speculation.needs_hidden

    @property
    def aux_layer_ids(self) -> tuple[int, ...]:
        """Layers whose inputs `keep_states` takes after the final states.

        The input of layer k is the output of layer k - 1.
        """
        return self._speculation.aux_layer_ids

    @property
    def drafts_on_device(self) -> bool:
        """Whether it reads the host's table where that is, and needs nothing that the host has not read."""
        given = self._speculation.capabilities
        on_device = {Capability.REQUEST_TABLE, Capability.BEFORE_VERDICT}
        return on_device <= given and not given & NEEDED_CAPABILITIES

    @property
    def drafts_late(self) -> bool:
        """Whether it drafts point masses from token ids alone, which may be some steps old."""
        others = NEEDED_CAPABILITIES | {Capability.REQUEST_TABLE, Capability.DRAFT_PROBS}
        return not self._speculation.capabilities & others

    @property
    def drafts_probs(self) -> bool:
        """Whether drafts may carry q."""
        return Capability.DRAFT_PROBS in self._speculation.capabilities

    @property
    def request_ids(self) -> Collection[str]:
        """The requests that were started and not finished."""
        return self._sequences.keys()

    def start(
        self,
        request_id: str,
        prompt_token_ids: Ids[int] | TokenIds,
        params: SamplingParams = _GREEDY,
        *,
        output_token_ids: Ids[int] | TokenIds = (),
        seed: int | None = None,
        line: int = -1,
    ) -> None:
        """Start a request.

        Args:
            request_id: the host's id; an id in use restarts its request.
            prompt_token_ids: the whole prompt.
            output_token_ids: tokens emitted before this call; not counted as emitted.
            params: sampling parameters, as far as the host gives them; `speculative` limits drafts of this
                request.
            seed: seed of the noise that `strict` chooses tokens with; None for the seed of `params`, or fresh
                noise if it has none.
            line: its line in `HostTarget.table`, if the host has one.
        """
        if request_id in self._sequences:
            self.finish([request_id], FinishReason.ABORT)
        params = with_checked_args(params, self.resolved)
        prompt = np.asarray(prompt_token_ids, dtype=np.int32)
        limit = self.info.max_model_len
        end = limit if params.max_tokens is None else min(limit, len(prompt) + params.max_tokens)
        given = params.seed if seed is None else seed
        sequence = self._sequences[request_id] = Sequence(
            request_id,
            prompt,
            params,
            seed=self._random.getrandbits(SEED_BITS) if given is None else signed(given),
            sample_index=0,
            max_num_tokens=max(end, len(prompt) + 1),
        )
        sequence.line = line
        sequence.append([*map(int, output_token_ids)][: sequence.max_num_tokens - len(prompt)], 0)

    def num_tokens(self, request_id: str) -> int:
        """Return how many tokens of a request are committed, prompt included."""
        return self._sequences[request_id].num_tokens

    def seed(self, request_id: str) -> int:
        """Return the seed of a request's noise."""
        return self._sequences[request_id].seed

    def commit(
        self, request_id: str, token_ids: Ids[int], *, num_drafted: int = 0, num_accepted: int = 0
    ) -> None:
        """Append the tokens that the host emitted for a request in one step.

        Args:
            request_id: a request that was started.
            token_ids: emitted tokens, the accepted drafted ones first; tokens after the request's end are
                dropped.
            num_drafted: number of nodes of the verified draft; 0 if there was none.
            num_accepted: how many of them were accepted; those after the end do not count.
        """
        sequence = self._sequences[request_id]
        room = sequence.max_num_tokens - sequence.num_tokens
        kept = list(token_ids)[:room]
        num_accepted = min(num_accepted, len(kept))
        sequence.append(kept, num_accepted)
        if self._steps is not None:
            self._steps.note_emitted(sequence, num_drafted, num_accepted)
        self._metrics.num_emitted_tokens += len(kept)
        if num_drafted:
            sequence.last_num_drafted, sequence.last_num_accepted = num_drafted, num_accepted
            sequence.drafts.count(num_drafted, num_accepted)
            self._metrics.count_draft(self.name, num_drafted, num_accepted)

    def keep_states(self, request_id: str, start: int, states: tuple[torch.Tensor, ...]) -> None:
        """Keep the states of a request's rows that the target computed; call after `commit` of the same step.

        A second start at row 0 means that the host recomputes the request (preemption); its states are
        delivered again. Any other start must be the end of the kept rows. Otherwise states are missing, such
        as those of a cached prefix, and the request gets no further drafts, which is counted in
        `specdec:requests_left_out`.

        Args:
            request_id: a request that was started.
            start: position of the first row.
            states: `[n, H]` of every kind: the final states (after the last norm), then one per `aux_layer_ids`, of the
                chunk and the accepted nodes. They are copied.
        """
        sequence = self._sequences[request_id]
        if not self.needs_hidden or not sequence.has_proposals:
            return
        if start == 0 and sequence.num_computed:
            self._speculation.forget([sequence])
            sequence.num_computed = 0
        if start != sequence.num_computed:
            self._speculation.give_up(
                sequence,
                "the host does not compute those of a cached prefix (turn prefix caching off)",
            )
            return
        # Rows whose token was not kept are left out: at most one state for each token after the first.
        num_rows = min(len(states[0]), sequence.num_tokens - 1 - start)
        copies = tuple(state[:num_rows].clone() for state in states)
        self._speculation.take_states(sequence, copies)
        sequence.num_computed += num_rows

    def propose(
        self,
        request_ids: Ids[str],
        max_nodes: Ids[int] | None = None,
        num_unread: Ids[int] | None = None,
    ) -> CheckedDraft:
        """Deliver the new tokens of these requests to the proposer, and draft for them.

        Args:
            request_ids: every request that runs, in the order of the rows wanted.
            max_nodes: `[B]`: maximum number of nodes for each; 0 if the prompt is not fully computed yet, or
                no draft is wanted. None means k. The limits of the configuration, of
                `SamplingParams.speculative` and of the request's length apply as well.
            num_unread: `[B]`: the most tokens of each that are emitted and not committed here, because the host has
                not read them; for proposers that draft late or on the device. None if all are committed.

        Returns:
            a draft with one row per request; `rows` has its ids. Rows are empty if the proposer drafted
            nothing, failed, or is paused after failures. With `num_unread`, a late draft begins with the tokens that
            were not read, and is longer by them if the proposer can (`Capability.LATE_DRAFTS`); one from the device
            follows them, and is in `device_nodes`, which nobody has read.
        """
        started = time.perf_counter()
        rows = [self._sequences[request_id] for request_id in request_ids]
        wanted = [self.num_speculative_tokens] * len(rows) if max_nodes is None else list(max_nodes)
        # Those that the host continues with; one without output is still in prefill.
        step = self._step = Step(
            [Row(s, s.num_computed, s.num_tokens, most) for s, most in zip(rows, wanted, strict=True)]
        )
        decoding = [row for row in step.rows if row.cap or not row.sequence.num_output_tokens]
        if self._steps is not None:
            self._steps.end(started)
        self._speculation.plan(step, decoding)
        draft = self._draft(step, num_unread) if rows else CheckedDraft.empty(0)
        ended = time.perf_counter()
        self._metrics.num_steps += 1
        self._metrics.seconds["propose"] += ended - started
        if self._steps is not None and step.is_measured:
            self._steps.begin(step, len(decoding), ended - started, ended)
        return draft

    def _draft(self, step: Step, num_unread: Ids[int] | None) -> CheckedDraft:
        if num_unread is not None and self.drafts_on_device and not (step.is_paused or step.is_suspended):
            caps = [row.cap for row in step.rows]
            draft = self._speculation.draft_late(step, caps, num_unread)
            return CheckedDraft.empty(len(step.rows)) if draft is None else draft
        if num_unread is not None and Capability.LATE_DRAFTS in self._speculation.capabilities:
            for row, more in zip(step.rows, num_unread, strict=True):
                row.cap += more if row.cap else 0
        return self._speculation.propose(step).read()  # hosts look at the ids

    def observe_target(self, seconds: float, num_prompt_rows: int | None = None) -> None:
        """Record a step of the target; call before `propose`.

        Args:
            seconds: its duration; a proposer's time budget is four times that, and at least 50 ms.
            num_prompt_rows: prompt rows in it; `adaptive` counts a step in which a request started only if
                this is given.
        """
        self._speculation.observe_target(seconds)
        if self._steps is not None:
            self._steps.note_prompt_rows(num_prompt_rows)

    def finish(self, request_ids: Ids[str], reason: FinishReason) -> None:
        """End requests and tell the proposer why. One that learns from tokens receives the last ones first, unless left out.

        Unknown ids are ignored.
        """
        ended = [self._sequences[name] for name in dict.fromkeys(request_ids) if name in self._sequences]
        for sequence in ended:
            sequence.finish_reason = reason
        is_aborted = reason is FinishReason.ABORT
        if not (is_aborted or self.needs_hidden) and any(s.delivered < s.num_tokens for s in ended):
            others = [sequence for sequence in self._sequences.values() if sequence not in ended]
            self._speculation.deliver_last(ended, others, is_suspended=self._step.is_suspended)
        for name in request_ids:
            self._sequences.pop(name, None)
        self._speculation.finish(ended, reason if is_aborted else None)

    def attempt(self, do: Callable[[], T]) -> T | None:
        """Return what `do`, a function of an adapter, returns; None if it raises, and all requests are then forgotten.

        So a failure of the adapter costs no more than one of the proposer; `"on_proposer_error": "raise"` raises it.
        """
        try:
            return do()
        except Exception:
            if self.resolved.config.on_proposer_error == "raise":
                raise
            self._num_failures += 1
            if self._num_failures == 1:
                logger.exception(
                    "specdec's adapter for %s failed in a step, which drafts nothing (logged once, counted in "
                    "specdec:adapter_failures)",
                    self._host,
                )
            self.finish(list(self.request_ids), FinishReason.ABORT)
            return None

    def metrics(self) -> list[Metric]:
        """Return the counters, under the names of `LLM.get_metrics`."""
        return self._metrics.snapshot()

    def counters(self) -> dict[str, int | float | list[int]]:
        """Return the values of `metrics` by name, with the steps that the adapter failed in and the requests it holds."""
        counted: dict[str, int | float | list[int]] = {
            "specdec:adapter_failures": self._num_failures,
            "specdec:requests_held": len(self._sequences),
        }
        for metric in self.metrics():
            if isinstance(metric, Counter):
                counted[metric.name] = metric.value
            elif isinstance(metric, Vector):
                counted[metric.name] = metric.values
        return counted
