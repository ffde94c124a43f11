"""The engine's side of the contract, reduced to what a proposer sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np
import torch

from specdec import SamplingParams
from specdec.assembly import lines_for, no_states
from specdec.engine import Delivery, TopK, undeclared
from specdec.engine import Sequence as EngineSequence
from specdec.interfaces import Capability, FinishReason, Proposer
from specdec_testing.support.draws import RecordingDraws
from specdec_testing.support.loan import Loan
from specdec_testing.support.rows import Row, rows_of
from specdec_testing.support.target import CheckTarget
from specdec_testing.support.verdicts import broken, described

_PARAMS = SamplingParams(max_tokens=None)


@dataclass(frozen=True)
class Ask:
    """What one call delivers for one request, and the draft that it wants."""

    count: int
    """Number of newly delivered tokens."""
    cap: int
    """`max_nodes`."""
    start: int | None = None
    """Position of the first delivered token; None means the end of the last delivery."""
    num_ahead: int = 0
    """Number of committed tokens that are not delivered yet because their hidden states are not available."""


@dataclass
class Request:
    """The feed's state of one request."""

    text: list[int]
    """The whole text, including future tokens."""
    num_prompt_tokens: int
    params: SamplingParams
    seed: int
    delivered: int = 0
    last: Row | None = None


class Feed:
    """Delivers texts to one proposer as an engine does, and records requests and drafts.

    Args:
        proposer: a loaded proposer.
        target: provides the hidden states, if the proposer needs them.
        has_feedback: whether batches report how much of the last draft was accepted; otherwise they report no scored draft.
    """

    def __init__(self, proposer: Proposer, target: CheckTarget, *, has_feedback: bool = False) -> None:
        self.proposer = proposer
        self.requests: dict[str, Request] = {}
        self.seconds: list[tuple[float, int]] = []
        """For each call its duration and the number of drafts wanted."""
        self.is_scribbling = False
        """Whether the batch's memory is overwritten after each call."""
        self.is_watching = False
        """Whether batches are checked for changes after each call."""
        self.written: list[str] = []
        """Batch fields that were written to."""
        self.draws: RecordingDraws | None = None
        """The draws of the last call."""
        self._target = target
        self._has_feedback = has_feedback
        given = proposer.capabilities
        self._drafts_on_target = Capability.TARGET_CACHE in given
        self._delivery = Delivery(
            no_states=no_states(proposer, target.handle.info),
            device=target.handle.info.device,
            num_top_k=proposer.num_top_k if Capability.TARGET_TOP_K in given else 0,
            draft_slots=target.scorer.draft_slots if self._drafts_on_target else None,
            lines=lines_for(proposer, target.handle.info),
        )
        self.needs_hidden = self._delivery.needs_hidden

    def add(
        self,
        name: str,
        text: Sequence[int],
        num_prompt_tokens: int,
        *,
        seed: int = 1,
        temperature: float = 1.0,
    ) -> None:
        """Add a request; nothing is delivered yet."""
        params = _PARAMS.model_copy(update={"temperature": temperature, "seed": seed})
        self.requests[name] = Request(list(text), num_prompt_tokens, params, seed)

    def call(self, asks: Mapping[str, Ask]) -> dict[str, Row]:
        """Call `propose` once and return the draft for each request."""
        names = list(asks)
        if not names:
            return {}
        sequences = [self._sequence(name, asks[name]) for name in names]
        caps = [asks[name].cap for name in names]
        if self._delivery.num_top_k:
            given = {s: self._top_k(s, self.requests[s.row_id], asks[s.row_id].count) for s in sequences}
            kept = {s: top_k for s, top_k in given.items() if top_k is not None}
            self._delivery.top_k = lambda: kept
        if self._drafts_on_target:
            self._target.hold(sequences)
        batch = self._delivery.build(sequences, caps)
        self.draws = RecordingDraws(batch.draws)
        batch = replace(batch, draws=self.draws)
        loan = Loan(batch, [sequence.token_ids for sequence in sequences], is_watched=self.is_watching)
        started = perf_counter()
        try:
            draft = self.proposer.propose(loan.batch)
        except Exception as error:
            written = loan.written()
            remedy = undeclared(error, self.proposer.capabilities)
            broken(
                f"propose raised {described(error)}"
                + (f"; {remedy}" if remedy else "")
                + (f" (it had written to {written})" if written else "")
            )
        finally:
            if self._delivery.draft_slots is not None:
                self._delivery.draft_slots.close()
        self.seconds.append((perf_counter() - started, sum(cap > 0 for cap in caps)))
        if (written := loan.written()) is not None:
            self.written.append(written)
        rows = dict(zip(names, rows_of(draft, len(names)), strict=True))
        if self.is_scribbling:
            loan.scribble()
        for name, sequence in zip(names, sequences, strict=True):
            request = self.requests[name]
            request.delivered, request.last = sequence.delivered, rows[name]
        return rows

    def resume(self, name: str, count: int) -> int:
        """Ask the proposer how many of a new request's first `count` tokens it holds; delivery continues after them."""
        request = self.requests[name]
        token_ids = np.array(request.text[:count], np.int32)
        token_ids.flags.writeable = False
        try:
            held: object = self.proposer.resume(name, token_ids)
        except Exception as error:
            broken(f"resume raised {described(error)}")
        if not isinstance(held, int) or not 0 <= held <= count:
            broken(f"resume returned {held!r} for {count} tokens")
        request.delivered = held
        return held

    def finish(self, names: Sequence[str], reason: FinishReason) -> None:
        """Finish requests: call the proposer's `finish` and remove them."""
        try:
            self.proposer.finish(tuple(names), reason)
        except Exception as error:
            broken(f"finish({list(names)}, {reason.name}) raised {described(error)}")
        for name in names:
            self.requests.pop(name, None)

    def _sequence(self, name: str, ask: Ask) -> EngineSequence:
        request = self.requests[name]
        start = request.delivered if ask.start is None else ask.start
        end = start + ask.count
        num_tokens = end + ask.num_ahead
        assert 0 < num_tokens <= len(request.text)
        sequence = EngineSequence(
            name,
            np.array(request.text[:num_tokens], np.int32),
            request.params,
            seed=request.seed,
            sample_index=0,
            max_num_tokens=max(num_tokens, len(request.text)),
        )
        sequence.num_prompt_tokens = min(request.num_prompt_tokens, num_tokens)
        sequence.delivered = start
        if self._has_feedback and request.last is not None and ask.start is None:
            future = request.text[request.delivered : end]
            sequence.last_num_drafted = len(request.last.tokens)
            sequence.last_num_accepted = request.last.count_standing(future)
        if self.needs_hidden and ask.count:
            sequence.deliverable_hidden.append(self._states(request.text, start, end))
        return sequence

    def _top_k(self, sequence: EngineSequence, request: Request, count: int) -> TopK | None:
        """Return what the target holds for most probable after the tokens that chose the `count` new ones; None in a prompt."""
        first = max(sequence.delivered, request.num_prompt_tokens) - 1
        end = sequence.delivered + count - 1
        if end <= first:
            return None
        state = self._target.states(request.text, ())[0][first:end]
        logprobs = self._target.handle.lm_head(state).detach().float().log_softmax(-1)
        values, ids = logprobs.topk(self._delivery.num_top_k)
        return TopK(request.text[first:end], ids.to(torch.int32), values)

    def _states(self, text: list[int], start: int, end: int) -> tuple[torch.Tensor, ...]:
        """Return the states that chose the tokens of a span, each from one position before the token."""
        states = self._target.states_before(text, tuple(self.proposer.aux_layer_ids))
        return tuple(state[start:end].clone() for state in states)
