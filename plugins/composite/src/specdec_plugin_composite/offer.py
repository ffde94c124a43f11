"""A draft of one member for one request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from specdec.interfaces import CheckedDraft, UnreadIds, UnreadRow


@dataclass(frozen=True)
class Offer:
    """Drafted tokens as a chain or a tree; any prefix is an offer too."""

    token_ids: Sequence[int]
    """Of a draft that is on a device the number is known at once, and they are after `read`."""
    parents: tuple[int, ...]
    """The parent of each node, which precedes it; -1 is the last committed token."""
    proposer: str
    """The name of the proposer that drafted it."""
    confidence: tuple[float, ...] | None = None
    """For each node the probability that it is accepted if its parent is; None if the proposer estimates none."""
    member: int = -1
    """The number of the member whose draft it is; -1 if it is made of several."""

    @property
    def promise(self) -> float:
        """Expected number of accepted tokens by the confidence; the number of nodes without."""
        if self.confidence is None:
            return float(len(self.token_ids))
        return sum(along_paths(self.parents, self.confidence))

    @property
    def depth(self) -> int:
        """Number of nodes on the longest path."""
        return int(max(along_paths(self.parents, [1.0] * len(self.parents), is_sum=True), default=0.0))

    @property
    def is_chain(self) -> bool:
        """Whether each node is the child of the one before."""
        return all(parent == node - 1 for node, parent in enumerate(self.parents))

    def read(self) -> None:
        """Wait for the tokens, if they are on a device; who looks at one of them calls this before."""

    def first(self, count: int) -> Offer:
        """Return the offer of the first `count` nodes."""
        if count >= len(self.token_ids):
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

    _verdict: list[int] = field(default_factory=list)
    """The number of accepted nodes, once it is known."""

    @property
    def ids(self) -> UnreadIds:
        """The draft that it is a row of."""
        assert isinstance(self.token_ids, UnreadRow)
        return self.token_ids.ids

    def read(self) -> None:
        """See `Offer.read`."""
        self.ids.read()

    def first(self, count: int) -> Offer:
        """See `Offer.first`; a shorter one is read."""
        if count >= len(self.token_ids):
            return self
        self.read()
        return Offer(tuple(self.token_ids[:count]), self.parents[:count], self.proposer, None, self.member)

    @property
    def is_judged(self) -> bool:
        """Whether there was a verdict that says all."""
        return bool(self._verdict)

    def judge(self, num_drafted: int, num_accepted: int) -> None:
        """Take the verdict: `num_accepted` of its first `num_drafted` nodes were accepted. What follows these is not known."""
        if num_accepted < num_drafted or num_drafted == len(self.token_ids):
            self._verdict[:] = [num_accepted]

    def path(self, text: Sequence[int]) -> list[int]:
        """Return the nodes whose tokens begin `text`, which begins where the offer does; `is_judged` must hold."""
        return list(range(min(self._verdict[0], len(text))))


def offers_of(draft: CheckedDraft, name: str, member: int) -> list[Offer | None]:
    """Return the rows of a member's draft, None for empty ones; `name` and `member` are the member's name and number."""
    offers: list[Offer | None] = []
    for row, token_ids in enumerate(draft.rows):
        if not token_ids:
            offers.append(None)
            continue
        parents = tuple(range(-1, len(token_ids) - 1)) if draft.parents is None else tuple(draft.parents[row])
        confidence = None
        if draft.confidence is not None:  # which nobody has checked: it may be no number
            confidence = tuple(min(chance, 1.0) if chance > 0.0 else 0.0 for chance in draft.confidence[row])
        inner = "" if draft.proposers is None else draft.proposers[row]
        if draft.unread is None:
            offers.append(Offer(tuple(token_ids), parents, inner or name, confidence, member))
        else:
            offers.append(UnreadOffer(token_ids, parents, inner or name, None, member))
    return offers


def along_paths(parents: Sequence[int], values: Sequence[float], *, is_sum: bool = False) -> list[float]:
    """Return for each node the product, or the sum, of the values on the path to it."""
    found: list[float] = []
    for parent, value in zip(parents, values, strict=True):
        if parent >= 0:
            value = value + found[parent] if is_sum else value * found[parent]
        found.append(value)
    return found
