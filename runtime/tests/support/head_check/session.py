"""Runs requests through a proposer, and holds everything it drafts against the reference."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import torch

from head_check.target import check
from specdec.interfaces import FinishReason, ProposeBatch
from specdec_runtime.drafting import Choice, DraftPosition, RowsProposer
from specdec_testing.support.feed import Ask, Feed
from specdec_testing.support.rows import Row

TOLERANCE = 1e-5


class Session(ABC):
    """Requests that draft, accept a part, and go on; every logit seen on the way is compared.

    Args:
        proposer: a loaded one.
    """

    def __init__(self, proposer: RowsProposer) -> None:
        self.feed = Feed(proposer, check())
        self.feed.is_scribbling = True
        self.rows: dict[str, Row] = {}
        self.num_compared = 0
        self.seen: dict[tuple[str, tuple[int, ...]], torch.Tensor] = {}
        """Logits `[V']` that a choice was made from, by request and drafted path."""
        self.history: list[dict[str, Row]] = []
        """What was drafted in each step."""
        self._proposer = proposer
        self._spy("choose")
        self._spy("rank")

    def begin(self, name: str, prompt: Sequence[int], temperature: float = 1.0) -> None:
        """Make a request known."""
        self.feed.add(name, prompt, len(prompt), seed=len(self.feed.requests), temperature=temperature)

    def step(self, asks: Mapping[str, Ask]) -> None:
        """Call the proposer once and compare what it drafted."""
        self.seen.clear()
        self.history.append(self.feed.call(asks))
        self.rows |= self.history[-1]
        for name, ask in asks.items():
            if ask.cap == 0:
                assert not self.rows[name].tokens
                continue
            assert self.rows[name].tokens, f"nothing drafted for {name}"
            self.compare(name)

    def accept(self, name: str, count: int) -> int:
        """Commit `count` tokens along a deepest path of the last draft and one more that was not drafted there.

        Returns:
            how many tokens are new.
        """
        row, request = self.rows[name], self.feed.requests[name]
        node = max(range(len(row.tokens)), key=lambda n: (row.depths[n], -n))
        path = self.path(row, node)[:count]
        drafted = {row.tokens[n] for n in range(len(row.tokens)) if self.path(row, n)[:-1] == path}
        other = next(token for token in range(7, 60) if token not in drafted)
        request.text[request.delivered :] = [*path, other]
        return len(path) + 1

    def compare(self, name: str) -> None:
        """Compare distributions, and logits that choices were made from, with the reference along each path."""
        row = self.rows[name]
        for node in {-1, *row.parents}:
            path = self.path(row, node)
            if row.probs is not None:
                heated = self.expected(name, path) / self.feed.requests[name].params.temperature
                self._equal(row.probs[node + 1].log(), heated.log_softmax(-1))
        for (owner, path), logits in self.seen.items():
            if owner == name:
                self._equal(logits, self.expected(name, path))

    @abstractmethod
    def expected(self, name: str, path: Sequence[int]) -> torch.Tensor:
        """Return the reference's logits `[V']` after a drafted path."""

    def text(self, name: str) -> list[int]:
        """Return what has been delivered of a request."""
        request = self.feed.requests[name]
        return request.text[: request.delivered]

    def states(self, text: Sequence[int]) -> tuple[torch.Tensor, ...]:
        """Return the target's states at all positions of a text: the last, then the aux ones."""
        return check().states(text, tuple(self._proposer.aux_layer_ids))

    def _equal(self, got: torch.Tensor, expected: torch.Tensor) -> None:
        scale = max(1.0, float(expected.abs().max()))
        torch.testing.assert_close(got.double() / scale, expected / scale, atol=TOLERANCE, rtol=0.0)
        self.num_compared += 1

    def path(self, row: Row, node: int) -> list[int]:
        path: list[int] = []
        while node >= 0:
            path.insert(0, row.tokens[node])
            node = row.parents[node]
        return path

    def _spy(self, method: str) -> None:
        chooser = self._proposer._drafter.chooser
        inner = getattr(chooser, method)

        def noting(logits: torch.Tensor, places: Sequence[DraftPosition], batch: ProposeBatch) -> Choice:
            for row, place in zip(logits, places, strict=True):
                self.seen[batch.request_ids[place.row], place.path] = row.clone()
            choice: Choice = inner(logits, places, batch)
            return choice

        setattr(chooser, method, noting)


def whole_life(session: Session, k: int = 4) -> None:
    """Let requests of several lengths live side by side: chunks, partial acceptance, rest, restarts, ends."""
    first, second = [3 * i % 61 for i in range(1, 10)], [5, 50, 20]
    session.begin("a", first)
    session.step({"a": Ask(5, 0)})
    session.step({"a": Ask(4, k)})
    session.step({"a": Ask(session.accept("a", 2), k)})
    session.begin("b", second)
    session.step({"b": Ask(3, k), "a": Ask(session.accept("a", 0), k)})
    session.step({"a": Ask(session.accept("a", k), k), "b": Ask(session.accept("b", 1), max(1, k - 2))})
    count = session.accept("a", 1)
    session.step({"a": Ask(count, 0), "b": Ask(session.accept("b", 1), k)})
    session.feed.requests["a"].text.extend([9, 8])
    session.step({"a": Ask(2, k), "b": Ask(session.accept("b", 0), 0)})
    session.step({"b": Ask(0, k)})
    # Redelivery from the start, and from somewhere inside.
    session.step({"a": Ask(6, 0, start=0), "b": Ask(3, k, start=2)})
    text = session.feed.requests["a"].text
    session.step({"a": Ask(len(text) - 6, k)})
    session.feed.finish(["a"], FinishReason.ABORT)
    session.begin("a", [2, 4, 6, 8, 10, 12])
    session.step({"b": Ask(session.accept("b", 1), k), "a": Ask(6, k)})
    session.step({"a": Ask(session.accept("a", 1), k)})
