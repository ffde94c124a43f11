"""`composite`: several proposers as one."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from time import perf_counter
from typing import ClassVar

from specdec.interfaces import (
    NEEDED_CAPABILITIES,
    Capability,
    CheckedDraft,
    Draft,
    FinishReason,
    LeftOut,
    ProposeBatch,
    Proposer,
    ProposerConfig,
    TargetHandle,
    TargetInfo,
    TokenIds,
)
from specdec_plugin_composite.assemble import draft_of, drawn_rows
from specdec_plugin_composite.config import CompositeConfig, MemberConfig
from specdec_plugin_composite.member import Member
from specdec_plugin_composite.offer import Offer, offers_of
from specdec_plugin_composite.policy import policy_class
from specdec_plugin_composite.round import Choice, Round, Unseen
from specdec_plugin_composite.states import States

logger = logging.getLogger("specdec")


class CompositeProposer(Proposer):
    """Drafts with its members, as its policy decides.

    A member that fails costs its own drafts only. Every token reaches every member: those that run no model at once, the
    others before they draft.
    """

    name: ClassVar[str] = "composite"
    Config: ClassVar[type[ProposerConfig]] = CompositeConfig
    capabilities = NEEDED_CAPABILITIES | {
        Capability.REQUEST_TABLE, Capability.TREE, Capability.DRAFT_PROBS, Capability.LATE_DRAFTS
    }  # fmt: skip

    def __init__(self, config: CompositeConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        made = self.make_members(config, target)
        self.aux_layer_ids = tuple(sorted({layer for p, _ in made for layer in p.aux_layer_ids}))
        self.num_top_k = max(
            (p.num_top_k for p, _ in made if Capability.TARGET_TOP_K in p.capabilities), default=0
        )
        self._states = States()
        self._members = [
            Member(
                proposer,
                member.config.num_speculative_tokens,
                config.num_speculative_tokens,
                [self.aux_layer_ids.index(layer) for layer in proposer.aux_layer_ids],
                self._states,
                member.choices,
                is_fallback=config.on_proposer_error == "fallback",
            )
            for proposer, member in made
        ]
        policy = policy_class(config.policy)
        policy.check(self._members)
        self._policy = policy(self._members, config.min_promise)
        of_members = [member.guard.capabilities for member in self._members]
        given = frozenset[Capability]().union(*of_members)
        if policy.makes_trees:
            given |= {Capability.TREE}
        if not all(Capability.LATE_DRAFTS in each for each in of_members):
            given -= {Capability.LATE_DRAFTS}
        self.capabilities = given & type(self).capabilities
        self.is_timed = policy.is_adaptive
        self._ended: float | None = None
        """When the last call ended, if its step was one of decoding alone."""
        self._last_ids: frozenset[str] = frozenset()
        """Its requests: where others came since, the engine may have been idle."""

    def make_members(
        self, config: CompositeConfig, target: TargetInfo
    ) -> list[tuple[Proposer, MemberConfig]]:
        """Return a proposer for each member, with its configuration."""
        return [(member.proposer.fitting(member.config, target), member) for member in config.proposers]

    def load(self, target: TargetHandle) -> None:
        """Load every member."""
        for member in self._members:
            self.load_member(member, target)
            if member.is_left_out:
                continue
            if member.reads_states and not member.guard.can_resume:
                logger.warning(
                    "composite: %r reads hidden states and has no `resume`, so cached prefixes are computed again for it, "
                    "counted in specdec:prefix_tokens_rerun; implement Proposer.resume, or set enable_prefix_caching=False",
                    member.name,
                )

    def load_member(self, member: Member, target: TargetHandle) -> None:
        """Load one member."""
        member.proposer.load(target)

    def weights_changed(self, target: TargetHandle | None) -> None:
        """Tell every member, even if one of them raises."""
        with ExitStack() as stack:
            for member in reversed(self._members):
                if not member.is_left_out:
                    stack.callback(member.proposer.weights_changed, target)

    def propose(self, batch: ProposeBatch) -> Draft:
        """Tell the members what is new, and draft as the policy decides."""
        other_s = None
        if self._ended is not None and self._last_ids.issuperset(batch.request_ids):
            other_s = perf_counter() - self._ended
        if batch.hidden_states is not None:
            self._states.add(batch)
        for member in self._members:
            member.deliver(batch)
            if other_s is not None:
                member.guard.observe_target(other_s)
        turn = Round(batch, self._members)
        self._policy.begin(turn, other_s)
        choices = self._policy.draft(turn)
        drafts = turn.complete(choices, is_paused=self._policy.is_paused)
        offers = [self._made(choice, row, drafts) for row, choice in enumerate(choices)]
        self._record(batch, offers)
        self._policy.verified(turn, offers)
        self.num_contained = sum(
            member.guard.metrics.proposer_errors + member.guard.metrics.proposer_overruns
            for member in self._members
        )
        self.left_out = self._requests_left_out()
        self._last_ids = frozenset(batch.request_ids)
        self._ended = perf_counter() if _is_decoding(batch) else None
        return draft_of(
            offers,
            self._with_q(turn, choices, drafts),
            is_tree=Capability.TREE in self.capabilities,
            vocab_size=self.target_info.vocab_size,
        )

    def resume(self, request_id: str, token_ids: TokenIds) -> int:
        """Return the prefix held by all members that read states and pay, else the longest one.

        The rest is delivered from the text. What a member lacks of the states is not computed again if it does not pay: it
        drafts nothing for this request.
        """
        held = [member.resume(request_id, token_ids) for member in self._members]
        needed = [
            count
            for number, count in enumerate(held)
            if self._members[number].reads_states and self._policy.pays(number)
        ]
        length = min(needed or [max(held)])
        for member, count in zip(self._members, held, strict=True):
            if count < length:
                member.miss(request_id)
        return length

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        """Drop these requests in every member, even if one of them raises."""
        self._policy.finish(request_ids)
        self._states.forget(request_ids)
        with ExitStack() as stack:
            for member in reversed(self._members):
                stack.callback(member.finish, request_ids, reason)

    def _requests_left_out(self) -> dict[str, LeftOut]:
        """Return what members leave out, by request, of those that can return where there are any."""
        found: dict[str, LeftOut] = {}
        for number, member in enumerate(self._members):
            for name, why in member.left_out(pays=self._policy.pays(number)).items():
                if why.can_return or name not in found:
                    found[name] = replace(why, reason=f"{member.name}: {why.reason}")
        return found

    def _with_q(
        self, turn: Round, choices: Sequence[Choice], drafts: dict[int, CheckedDraft]
    ) -> dict[int, CheckedDraft]:
        """Return, for the rows that keep their q, the draft of the member: those that were chosen unseen."""
        return {
            row: drafts[choice.member]
            for row, choice in enumerate(choices)
            if isinstance(choice, Unseen)
            and not turn.is_spoilt[row]
            and row in drawn_rows(drafts[choice.member])
        }

    def _made(self, choice: Choice, row: int, drafts: dict[int, CheckedDraft]) -> Offer | None:
        if not isinstance(choice, Unseen):
            return choice
        offer = offers_of(drafts[choice.member], self._members[choice.member].name, choice.member)[row]
        return choice.instead if offer is None else offer

    def _record(self, batch: ProposeBatch, offers: Sequence[Offer | None]) -> None:
        """Tell each member whose draft is verified, and end its step."""
        for request_id, offer in zip(batch.request_ids, offers, strict=True):
            if offer is not None and offer.member >= 0:
                self._members[offer.member].verify(request_id, offer)
        wanted: dict[str, int] = {}
        for number, member in enumerate(self._members):
            member.end(is_awaited=self._policy.waits_for(number))
            for name, position in member.waiting.items():
                wanted[name] = min(position, wanted.get(name, position))
        self._states.keep(wanted)


def _is_decoding(batch: ProposeBatch) -> bool:
    """Return whether every request got the tokens of one step of decoding: no prompt runs in this step."""
    return all(
        0 < count <= drafted + 1 for count, drafted in zip(batch.counts, batch.last_num_drafted, strict=True)
    )
