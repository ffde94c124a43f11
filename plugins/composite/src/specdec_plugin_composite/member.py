"""A member of a composite: a proposer under its own guard, told what is new when it is called."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from time import perf_counter

from specdec.engine import ProposerGuard
from specdec.interfaces import (
    Capability,
    CheckedDraft,
    FinishReason,
    LeftOut,
    ProposeBatch,
    Proposer,
    TargetTopK,
    TokenIds,
)
from specdec_plugin_composite.going_on import batch_behind
from specdec_plugin_composite.inbox import Inbox
from specdec_plugin_composite.offer import Offer, UnreadOffer
from specdec_plugin_composite.states import States

logger = logging.getLogger("specdec")

STATES = frozenset({Capability.HIDDEN_STATES, Capability.AUX_HIDDEN_STATES})
_IN_USE = 64
"""Steps without a draft after which a member is told nothing more of requests with many waiting states, which would take
long, or of all running ones if its policy does not wait for it."""
_UNUSED = "it was not chosen for long"
OF_MODELS = STATES | {Capability.OWN_KV, Capability.TARGET_CACHE}


class Member:
    """One proposer. Its failures cost its own drafts only, as `ProposerGuard` contains them.

    Args:
        proposer: the member.
        most_nodes: k of its configuration.
        most_of_all: k of the composite's.
        aux_places: indices of its auxiliary layers among those of the composite.
        states: where hidden states wait for members that read them.
        methods: names by which requests choose it.
        is_fallback: False re-raises its exceptions.
    """

    def __init__(
        self,
        proposer: Proposer,
        most_nodes: int,
        most_of_all: int,
        aux_places: Sequence[int],
        states: States,
        methods: Collection[str],
        *,
        is_fallback: bool,
    ) -> None:
        self.proposer = proposer
        self._methods = frozenset(methods)
        self._not_chosen: set[str] = set()
        """Requests that chose another member."""
        self.most_nodes, self._most_of_all = most_nodes, most_of_all
        self.guard = ProposerGuard(
            proposer,
            proposer.target_info.vocab_size,
            is_fallback=is_fallback,
            is_strict=False,
            supports_trees=Capability.TREE in proposer.capabilities,
        )
        self.name = self.guard.name
        given = self.guard.capabilities
        self.draws = Capability.DRAFT_PROBS in given
        """Whether its drafts carry q."""
        self.is_tree = Capability.TREE in given
        self._is_on_host = proposer.target_info.device.type == "cpu"
        self.runs_model = bool(given & OF_MODELS)
        """Whether a draft takes passes of a model; all others are called in every step."""
        self.reads_states = bool(given & STATES)
        self.is_target = Capability.TARGET_CACHE in given
        """Whether it is a form of the target, on its cache: there is nothing that it has to run before it drafts."""
        self.seconds, self.num_delivered = 0.0, 0
        """Duration of the last call, and number of tokens that it had to run before."""
        self.is_unread = False
        """Whether the last draft was left unread on a device, so that most of its duration is in the rest of the step."""
        self._inbox = Inbox(states if self.reads_states else None, aux_places)
        self._num_top_k = proposer.num_top_k if Capability.TARGET_TOP_K in given else 0
        self._verified: dict[str, Offer] = {}
        self._feedback: dict[str, tuple[int, int]] = {}
        self.is_left_out = False
        """Whether it is not used at all."""
        self._is_paused = False
        self._idle = 0
        """Steps since it was last asked for a draft."""
        self._has_warned = False

    def deliver(self, batch: ProposeBatch) -> None:
        """Take in what is new in a step, and how much of the member's draft was accepted."""
        if self.is_left_out:
            return
        self._inbox.add(batch)
        self._is_paused = self.guard.pause_left > 0
        self._idle += 1
        for row, request_id in enumerate(batch.request_ids):
            method = (batch.sampling_params[row].speculative or {}).get("method")
            if method is not None and method not in self._methods:
                self._not_chosen.add(request_id)
            offer = self._verified.pop(request_id, None)
            verdict = batch.last_num_drafted[row], batch.last_num_accepted[row]
            if offer is not None and verdict[0]:
                if isinstance(offer, UnreadOffer):
                    offer.observe_verdict(*verdict)
                self._feedback[request_id] = verdict

    @property
    def must_be_called(self) -> bool:
        """Whether it is called in this step even if no draft of it is wanted."""
        return self.can_draft and (not self.runs_model or self.is_waiting_long)

    @property
    def is_waiting_long(self) -> bool:
        """Whether too many states wait for a member that is in use."""
        return self.can_draft and self._idle < _IN_USE and self._inbox.is_full

    def can_draft_for(self, request_id: str) -> bool:
        """Return whether it can draft for a request: it was told all of it, or can be."""
        return self.can_draft and self._takes(request_id)

    def most_of(self, limit: int) -> int:
        """Return how many of `limit` nodes it may draft: a late draft is longer by what may have been emitted since."""
        return min(limit, self.most_nodes + max(0, limit - self._most_of_all))

    @property
    def waiting(self) -> dict[str, int]:
        """For each request with states that it was not told, the position of the first one."""
        return self._inbox.waiting

    def num_waiting(self, batch: ProposeBatch) -> int:
        """Return how many tokens of a batch it has to run before it drafts; none on the target's cache."""
        return 0 if self.is_target else self._inbox.num_waiting(batch)

    @property
    def can_draft(self) -> bool:
        """Whether it is neither left out nor paused after failures."""
        return not self.guard.pause_left and not self.is_left_out

    def ask(self, batch: ProposeBatch, limits: Sequence[int], *, is_seen: bool) -> CheckedDraft:
        """Deliver what it was not told, and return its draft with at most `limits [B]` nodes; empty rows if it fails.

        Without `is_seen` a chain on a device is not read.
        """
        self.guard.reads_drafts = is_seen or self.is_tree or self._is_on_host
        self.is_unread = False
        if not self.can_draft:
            return CheckedDraft.empty(batch.batch_size)
        names = batch.request_ids
        most = [
            self.most_of(limit) if self._takes(name) else 0 for name, limit in zip(names, limits, strict=True)
        ]
        feedback = [self._feedback.pop(name, (0, 0)) for name in names]
        if any(most):
            self._idle = 0
        own = replace(
            self._inbox.take(batch),
            max_nodes=tuple(most),
            last_num_drafted=[drafted for drafted, _ in feedback],
            last_num_accepted=[accepted for _, accepted in feedback],
            top_k=self._top_k(batch),
        )
        started = perf_counter()
        draft = self.guard.propose(own, most)
        self.seconds = perf_counter() - started
        self.num_delivered = 0 if self.is_target else sum(own.counts)
        self.is_unread = draft is not None and draft.device_nodes is not None
        if draft is None:
            self._drop(names)
            return CheckedDraft.empty(batch.batch_size)
        return draft

    def ask_behind(
        self, batch: ProposeBatch, paths: Sequence[Sequence[int]], limits: Sequence[int]
    ) -> CheckedDraft:
        """Return its draft behind drafted tokens `paths [B]`, which it is told and then made to forget."""
        if not self.can_draft:
            return CheckedDraft.empty(batch.batch_size)
        names = batch.request_ids
        most = [
            self.most_of(limit) if self._takes(name) else 0 for name, limit in zip(names, limits, strict=True)
        ]
        own = replace(batch_behind(self._inbox.take(batch), paths), max_nodes=tuple(most), verdict=None)
        self.guard.reads_drafts = True
        draft = self.guard.propose(own, most)
        if draft is None:
            self._drop(batch.request_ids)
            return CheckedDraft.empty(batch.batch_size)
        return draft

    def verify(self, request_id: str, offer: Offer) -> None:
        """Record that a draft of it is verified in this step."""
        self._verified[request_id] = offer

    def end(self, *, is_awaited: bool = True) -> None:
        """End a step: count a pause, and let go of what waits for a member that is not in use, at once unless `is_awaited`."""
        if self._idle >= _IN_USE and (not is_awaited or self._inbox.is_full):
            self._inbox.lose(list(self._inbox.waiting), _UNUSED)
        if self._is_paused:
            self.guard.pause_left -= 1
            if self._inbox.is_full:
                self._lose(
                    list(self._inbox.waiting),
                    "was left out after failures while too many states waited for it",
                )

    def resume(self, request_id: str, token_ids: TokenIds) -> int:
        """Return how many of a request's first tokens the member holds; all of them if it is left out."""
        if self.is_left_out:
            return len(token_ids)
        held = self.guard.resume(request_id, token_ids)
        self.guard.left_out = {name: why for name, why in self.guard.left_out.items() if name != request_id}
        self._inbox.resume(request_id, held)
        return held

    def left_out(self, *, pays: bool) -> dict[str, LeftOut]:
        """Return what it leaves out, and what it cannot be told; nothing of that can return unless the member `pays`."""
        can_return = pays and self.can_draft
        lost = {name: LeftOut(reason, can_return) for name, reason in self._inbox.lost.items()}
        own = self.guard.left_out.items()
        return lost | {name: replace(why, can_return=why.can_return and can_return) for name, why in own}

    def miss(self, request_id: str) -> None:
        """Do without a request whose states it does not get, until it is delivered from the start."""
        if self.reads_states:
            self.guard.finish([request_id], FinishReason.ERROR)
            self._inbox.miss(request_id, _UNUSED)

    def leave_out(self) -> None:
        """Use it no more: it could not be loaded."""
        self.is_left_out = True

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        """Drop the state of requests, here and in the member."""
        if self.is_left_out:
            return
        self._inbox.forget(request_ids)
        self._not_chosen.difference_update(request_ids)
        for request_id in request_ids:
            self._verified.pop(request_id, None)
            self._feedback.pop(request_id, None)
        if not self._verified and not self._feedback:  # an emptied dict keeps its memory
            self._verified, self._feedback = {}, {}
        self.guard.finish(request_ids, reason)

    def _takes(self, request_id: str) -> bool:
        """Return whether a request did not choose another member, and can be told to this one."""
        return request_id not in self._not_chosen and self._inbox.can_draft(request_id)

    def _drop(self, request_ids: Sequence[str]) -> None:
        """Drop the state of requests after a failure; they are told again from the text, or get no further drafts of it."""
        self.guard.finish(request_ids, FinishReason.ERROR)
        self._lose(request_ids, "failed, and its hidden states are gone")

    def _lose(self, request_ids: Sequence[str], reason: str) -> None:
        gone = self._inbox.lose(request_ids, f"it {reason}")
        if gone and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "%r drafts nothing for the running requests until they return: it %s (logged once)",
                self.name,
                reason,
            )

    def _top_k(self, batch: ProposeBatch) -> TargetTopK | None:
        """Return as many of the target's ids as the member asked for; other members may have asked for more."""
        if batch.top_k is None or not self._num_top_k:
            return None
        top_k, count = batch.top_k, self._num_top_k
        return replace(top_k, top_ids=top_k.top_ids[:, :count], logprobs=top_k.logprobs[:, :count])
