"""Proposers as others write them: one that is useful, and eight that are not."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from specdec import Draft, FinishReason, ProposeBatch, Proposer, ProposerConfig, TargetInfo


class LastSeen(Proposer):
    """Drafts what followed the last two tokens when they were seen before."""

    name = "last_seen"

    def __init__(self, config: ProposerConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        self.seen: dict[str, dict[tuple[int, int], int]] = {}

    def propose(self, batch: ProposeBatch) -> Draft:
        rows = []
        for row, name in enumerate(batch.request_ids):
            tokens, seen = batch.token_ids(row).tolist(), self.seen.setdefault(name, {})
            place = seen.get(tuple(tokens[-2:]), len(tokens))
            rows.append(tokens[place : place + batch.max_nodes[row]])
            for end in range(max(2, batch.starts[row]), len(tokens)):
                seen[tokens[end - 2], tokens[end - 1]] = end
        return Draft.from_lists(rows)

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        for name in request_ids:
            self.seen.pop(name, None)


class Hostile(Proposer):
    """Does something wrong in every second call."""

    name = "hostile"
    num_calls = 0

    def propose(self, batch: ProposeBatch) -> Draft:
        self.num_calls += 1
        return self.wrong(batch) if self.num_calls % 2 else self.harmless(batch)

    def harmless(self, batch: ProposeBatch) -> Draft:
        return Draft.from_lists([[1] * count for count in batch.max_nodes])

    def wrong(self, batch: ProposeBatch) -> Draft:
        raise NotImplementedError


class Raises(Hostile):
    def wrong(self, batch: ProposeBatch) -> Draft:
        raise RuntimeError("no")


class Nothing(Hostile):
    def wrong(self, batch: ProposeBatch) -> Draft:
        return None  # type: ignore[return-value]


class Outside(Hostile):
    def wrong(self, batch: ProposeBatch) -> Draft:
        return Draft.from_lists([[10**6] * count for count in batch.max_nodes])


class Negative(Hostile):
    def wrong(self, batch: ProposeBatch) -> Draft:
        return Draft(token_ids=torch.full((batch.batch_size, 3), -5))


class TooMany(Hostile):
    def wrong(self, batch: ProposeBatch) -> Draft:
        return Draft.from_lists([[1] * 300 for _ in batch.max_nodes])


class TooFewRows(Hostile):
    def wrong(self, batch: ProposeBatch) -> Draft:
        return Draft.from_lists([[1] * count for count in batch.max_nodes][:-1])


class Writes(Hostile):
    def wrong(self, batch: ProposeBatch) -> Draft:
        for row in range(batch.batch_size):
            batch.token_ids(row)[:] = 0
        return self.harmless(batch)


class Slow(Hostile):
    def wrong(self, batch: ProposeBatch) -> Draft:
        time.sleep(0.4)
        return self.harmless(batch)


HOSTILE = ("Raises", "Nothing", "Outside", "Negative", "TooMany", "TooFewRows", "Writes", "Slow")
