"""A draft of one member for one request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from specdec.interfaces import CheckedDraft, DeviceNodes


@dataclass(frozen=True)
class Offer:
    """Drafted tokens as a chain or a tree; any prefix is an offer too."""

    token_ids: tuple[int, ...]
    """Empty while a device has them."""
    parents: tuple[int, ...]
    """The parent of each node, which precedes it; -1 is the last committed token."""
    proposer: str
    """The name of the proposer that drafted it."""
    confidence: tuple[float, ...] | None = None
    """For each node the probability that it is accepted if its parent is; None if the proposer estimates none."""
    member: int = -1
    """The number of the member whose draft it is; -1 if it is made of several."""

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.parents)

    @property
    def promise(self) -> float:
        """Expected number of accepted tokens by the confidence; the number of nodes without."""
        if self.confidence is None:
            return float(self.num_nodes)
        return sum(accumulated(self.parents, self.confidence))

    @property
    def depth(self) -> int:
        """Number of nodes on the longest path."""
        return int(max(accumulated(self.parents, [1.0] * len(self.parents), is_sum=True), default=0.0))

    @property
    def is_chain(self) -> bool:
        """Whether each node is the child of the one before."""
        return all(parent == node - 1 for node, parent in enumerate(self.parents))

    def read(self) -> Offer:
        """Return the offer with its tokens on the host; waits for a device that has them."""
        return self

    def first(self, count: int) -> Offer:
        """Return the offer of the first `count` nodes."""
        if count >= self.num_nodes:
            return self
        confidence = None if self.confidence is None else self.confidence[:count]
        return replace(
            self, token_ids=self.token_ids[:count], parents=self.parents[:count], confidence=confidence
        )

    def path(self, text: Sequence[int]) -> list[int]:
        """Return the nodes, from the root, whose tokens begin `text`."""
        node, found = -1, list[int]()
        for token in text:
            children = (n for n, parent in enumerate(self.parents) if parent == node)
            child = next((n for n in children if self.token_ids[n] == token), None)
            if child is None:
                break
            node = child
            found.append(node)
        return found


@dataclass(frozen=True)
class UnreadOffer(Offer):
    """A chain on a device, of which the host reads no token: which of them are in the text, the verdict says."""

    device_nodes: DeviceNodes = field(kw_only=True)
    """The draft that it is a row of."""
    row: int = field(kw_only=True)
    _verdict: list[int] = field(default_factory=list)
    """The number of accepted nodes, once it is known."""

    def read(self) -> Offer:
        """See `Offer.read`."""
        token_ids, _ = self.device_nodes.read()
        return Offer(token_ids[self.row], self.parents, self.proposer, None, self.member)

    def first(self, count: int) -> Offer:
        """See `Offer.first`; a shorter one is read."""
        return self if count >= self.num_nodes else self.read().first(count)

    @property
    def has_verdict(self) -> bool:
        """Whether there was a verdict that says all."""
        return bool(self._verdict)

    def observe_verdict(self, num_drafted: int, num_accepted: int) -> None:
        """Take the verdict: `num_accepted` of its first `num_drafted` nodes were accepted. What follows these is not known."""
        if num_accepted < num_drafted or num_drafted == self.num_nodes:
            self._verdict[:] = [num_accepted]

    def path(self, text: Sequence[int]) -> list[int]:
        """Return the nodes whose tokens begin `text`, which begins where the offer does; `has_verdict` must hold."""
        return list(range(min(self._verdict[0], len(text))))


def offers_of(draft: CheckedDraft, name: str, member: int) -> list[Offer | None]:
    """Return the rows of a member's draft, None for empty ones; `name` and `member` are the member's name and number."""
    offers: list[Offer | None] = []
    for row, (token_ids, count) in enumerate(zip(draft.rows, draft.num_nodes, strict=True)):
        if not count:
            offers.append(None)
            continue
        parents = tuple(range(-1, count - 1)) if draft.parents is None else draft.parents[row]
        confidence = None
        if draft.confidence is not None:  # which nobody has checked: it may be no number
            confidence = tuple(min(chance, 1.0) if chance > 0.0 else 0.0 for chance in draft.confidence[row])
        inner = "" if draft.proposers is None else draft.proposers[row]
        given, there = (token_ids, parents, inner or name, confidence, member), draft.device_nodes
        offers.append(Offer(*given) if there is None else UnreadOffer(*given, device_nodes=there, row=row))
    return offers


def accumulated(parents: Sequence[int], values: Sequence[float], *, is_sum: bool = False) -> list[float]:
    """Return for each node the product, or the sum, of the values on the path to it."""
    found: list[float] = []
    for parent, value in zip(parents, values, strict=True):
        if parent >= 0:
            value = value + found[parent] if is_sum else value * found[parent]
        found.append(value)
    return found
