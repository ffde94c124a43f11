"""One step of a composite: what a policy may ask of the members, and what became of q."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specdec.interfaces import CheckedDraft, ProposeBatch
from specdec_plugin_composite.member import Member
from specdec_plugin_composite.offer import Offer, offers_of


@dataclass(frozen=True)
class Unseen:
    """The choice of a member's draft before it is made, so that it keeps its q."""

    member: int
    max_nodes: int
    instead: Offer | None = None
    """What is drafted where the member drafts nothing."""


Choice = Offer | Unseen | None
"""What is verified for one request: an offer that the policy has seen or made, a draft that it has not, or nothing."""


class Round:
    """One step, for a policy: shows offers of members, and remembers whose q is spoilt by that.

    A token drawn from q is accepted with the right probability only if its presence does not depend on what was drawn. So a
    row in which a drawn draft was looked at carries no q, whichever draft is chosen: its tokens are verified as point masses.

    Args:
        batch: the step's.
        members: all of the composite's.
    """

    def __init__(self, batch: ProposeBatch, members: Sequence[Member]) -> None:
        self._batch, self._members = batch, members
        self._drafts: dict[int, CheckedDraft] = {}
        self._limits: dict[int, list[int]] = {}
        self.is_spoilt = [False] * batch.batch_size
        """`[B]`: rows in which a drawn draft was looked at."""

    @property
    def request_ids(self) -> tuple[str, ...]:
        """`[B]`."""
        return self._batch.request_ids

    @property
    def max_nodes(self) -> Sequence[int]:
        """`[B]` most nodes of a draft; 0 where none is wanted."""
        return self._batch.max_nodes

    @property
    def num_tokens(self) -> Sequence[int]:
        """`[B]` number of committed tokens."""
        return self._batch.num_tokens

    @property
    def last_num_drafted(self) -> Sequence[int]:
        """`[B]` nodes of the last step's draft that were scored."""
        return self._batch.last_num_drafted

    def num_waiting(self, member: int) -> int:
        """Return how many tokens a member has to run before it drafts."""
        return self._members[member].num_waiting(self._batch)

    def limits_of(self, member: int) -> list[int]:
        """Return the limits above 0 that a member was asked with in this step."""
        return [limit for limit in self._limits.get(member, ()) if limit > 0]

    def text(self, row: int, start: int) -> list[int]:
        """Return a row's committed tokens from a position on."""
        tokens: list[int] = self._batch.token_ids(row)[start:].tolist()
        return tokens

    def offers(self, member: int, limits: Sequence[int] | None = None) -> list[Offer | None]:
        """Ask a member, once in a step, for drafts of at most `limits [B]` nodes, and look at them.

        Args:
            member: its number.
            limits: 0 where none is wanted; None means `max_nodes`.
        """
        draft = self._ask(member, self.max_nodes if limits is None else limits, is_seen=True)
        self._spoil(draft)
        return offers_of(draft, self._members[member].name, member)

    def offers_behind(
        self, member: int, offers: Sequence[Offer | None], limits: Sequence[int]
    ) -> list[Offer | None]:
        """Ask a member, once in a step, for drafts that go on behind the chains `offers [B]`, and look at them.

        Returns:
            the drafts alone, without what they follow.
        """
        assert member not in self._drafts, "a member is asked once in a step"
        paths = [() if offer is None else offer.token_ids for offer in offers]
        draft = self._members[member].ask_behind(self._batch, paths, limits)
        self._drafts[member] = draft
        self._spoil(draft)
        return offers_of(draft, self._members[member].name, member)

    def complete(self, choices: Sequence[Choice], *, is_paused: bool = False) -> dict[int, CheckedDraft]:
        """Make the unseen drafts that were chosen, and call every other member that has to be called; returns all drafts.

        Args:
            choices: `[B]`.
            is_paused: whether members that run no model can wait too.
        """
        limits = {
            number: [0] * self._batch.batch_size
            for number, member in enumerate(self._members)
            if number not in self._drafts and (member.is_waiting_long if is_paused else member.must_be_called)
        }
        for row, choice in enumerate(choices):
            if isinstance(choice, Unseen):
                if choice.member in self._drafts:
                    raise RuntimeError(
                        f"a policy chose the draft of member {choice.member} as unseen, and asked that member before: "
                        "choose one of its offers"
                    )
                most = min(choice.max_nodes, self.max_nodes[row])
                limits.setdefault(choice.member, [0] * self._batch.batch_size)[row] = most
        for number, wanted in limits.items():
            self._ask(number, wanted, is_seen=False)
        return self._drafts

    def _ask(self, member: int, limits: Sequence[int], *, is_seen: bool) -> CheckedDraft:
        assert member not in self._drafts, "a member is asked once in a step"
        most = [min(a, b) for a, b in zip(limits, self.max_nodes, strict=True)]
        asked = self._members[member]
        self._limits[member] = [asked.most_of(limit) for limit in most]
        draft = self._drafts[member] = asked.ask(self._batch, most, is_seen=is_seen)
        return draft

    def _spoil(self, draft: CheckedDraft) -> None:
        if draft.drawn is None:
            return
        flags = draft.drawn.has_probs
        carries = [True] * len(draft.rows) if flags is None else flags.tolist()
        self.is_spoilt = [
            spoilt or (carried and count > 0)
            for spoilt, carried, count in zip(self.is_spoilt, carries, draft.num_nodes, strict=True)
        ]
