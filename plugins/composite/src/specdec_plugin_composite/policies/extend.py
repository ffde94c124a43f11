"""`extend`: each member goes on where the chain before ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from specdec import ConfigError
from specdec.interfaces import Capability
from specdec_plugin_composite.member import STATES, Member
from specdec_plugin_composite.offer import Offer
from specdec_plugin_composite.policy import Policy
from specdec_plugin_composite.round import Choice, Round


class Extend(Policy):
    """Joins chains: the second member drafts behind the first one's draft, as if that were accepted, and so on.

    Members but the first are told drafted tokens and then made to forget them, so they must need no more than tokens.
    """

    name: ClassVar[str] = "extend"

    @classmethod
    def check(cls, members: Sequence[Member]) -> None:
        """Refuse trees, and members that cannot draft behind tokens that are not committed."""
        for member in members:
            if member.is_tree:
                raise ConfigError(
                    f"speculative_config: policy 'extend' joins chains, and {member.name!r} drafts trees: make "
                    "it draft chains"
                )
        for member in members[1:]:
            if needed := (STATES | {Capability.TARGET_CACHE}) & member.guard.capabilities:
                raise ConfigError(
                    f"speculative_config: policy 'extend': {member.name!r} needs {' and '.join(sorted(c.name for c in needed))}"
                    ", which drafted tokens do not have: put it first, or take a method that reads tokens only"
                )

    def draft(self, turn: Round) -> list[Choice]:
        """Return the joined chains."""
        joined = turn.offers(0)
        for number in range(1, len(self.members)):
            room = [
                most - (0 if offer is None else len(offer.token_ids))
                for most, offer in zip(turn.max_nodes, joined, strict=True)
            ]
            more = turn.offers_behind(number, joined, room)
            joined = [_join(first, then) for first, then in zip(joined, more, strict=True)]
        return list(joined)


def _join(first: Offer | None, then: Offer | None) -> Offer | None:
    if first is None or then is None:
        return first or then
    tokens = (*first.token_ids, *then.token_ids)
    confidence = None
    if first.confidence is not None and then.confidence is not None:
        confidence = first.confidence + then.confidence
    return Offer(tokens, tuple(range(-1, len(tokens) - 1)), f"{first.proposer}+{then.proposer}", confidence)
