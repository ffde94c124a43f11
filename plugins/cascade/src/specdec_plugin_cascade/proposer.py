"""`cascade`: several proposers as one."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import ClassVar

from specdec.interfaces import (
    NEEDED_CAPABILITIES,
    Capability,
    Draft,
    FinishReason,
    ProposeBatch,
    Proposer,
    ProposerConfig,
    TargetHandle,
    TargetInfo,
    TokenIds,
)
from specdec_plugin_cascade.asked import Asked, Offer
from specdec_plugin_cascade.config import CascadeConfig

logger = logging.getLogger("specdec")


class CascadeProposer(Proposer):
    """Calls cheap proposers first, and later ones only for requests whose draft promises too few tokens.

    Every token is delivered to all members, whichever of them drafts. Drafts depend on the text alone if this holds for the
    members.
    """

    name: ClassVar[str] = "cascade"
    Config: ClassVar[type[ProposerConfig]] = CascadeConfig
    capabilities = NEEDED_CAPABILITIES | {Capability.TREE}

    def __init__(self, config: CascadeConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        proposers = [member.proposer(member.config, target) for member in config.proposers]
        self.aux_layer_ids = tuple(sorted({layer for p in proposers for layer in p.aux_layer_ids}))
        self.num_top_k = max(
            (p.num_top_k for p in proposers if Capability.TARGET_TOP_K in p.capabilities), default=0
        )
        self._enough = config.min_promise
        self._members = [
            Asked(
                proposer,
                member.config.num_speculative_tokens,
                [self.aux_layer_ids.index(layer) for layer in proposer.aux_layer_ids],
            )
            for proposer, member in zip(proposers, config.proposers, strict=True)
        ]
        given = frozenset[Capability]().union(*(p.capabilities for p in proposers))
        self.capabilities = given & type(self).capabilities

    def load(self, target: TargetHandle) -> None:
        """Load every member."""
        for member in self._members:
            member.proposer.load(target)
            if member.reads_states and not member.can_resume:
                logger.warning(
                    "cascade: %r reads hidden states and has no `resume`, so cached prefixes are computed again for it, "
                    "counted in specdec:prefix_tokens_rerun; implement Proposer.resume, or set enable_prefix_caching=False",
                    member.proposer.name,
                )

    def propose(self, batch: ProposeBatch) -> Draft:
        """Call the members in order until a draft promises enough; if none does, the last available draft is used."""
        best: list[tuple[int, Offer] | None] = [None] * batch.batch_size
        is_open = [most > 0 for most in batch.max_nodes]
        for number, member in enumerate(self._members):
            for row, offer in enumerate(member.ask(batch, is_open)):
                if offer is not None and is_open[row]:
                    best[row] = (number, offer)
                    is_open[row] = offer.promise < self._enough
        for number, member in enumerate(self._members):
            member.chosen(batch.request_ids, [choice is not None and choice[0] == number for choice in best])
        offers = [None if choice is None else choice[1] for choice in best]
        tokens = [[] if offer is None else offer.token_ids for offer in offers]
        parents = [[] if offer is None else offer.parents for offer in offers]
        draft = Draft.from_lists(tokens, parents if Capability.TREE in self.capabilities else None)
        return replace(draft, proposers=tuple(self._name(choice) for choice in best))

    def _name(self, choice: tuple[int, Offer] | None) -> str:
        """Return the name of the proposer of a row's chosen draft; empty without a draft."""
        if choice is None:
            return ""
        number, offer = choice
        return offer.proposer or self._members[number].proposer.name

    def resume(self, request_id: str, token_ids: TokenIds) -> int:
        """Return the prefix held by all members that read states, else the longest one; the rest is delivered from the text."""
        held = [(member.resume(request_id, token_ids), member.reads_states) for member in self._members]
        of_states = [count for count, reads_states in held if reads_states]
        return min(of_states) if of_states else max(count for count, _ in held)

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        """Drop these requests in every member, even if one of them raises."""
        with ExitStack() as stack:
            for member in reversed(self._members):
                stack.callback(member.finish, request_ids, reason)
