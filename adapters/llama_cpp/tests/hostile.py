"""Proposers that break what they can, and one that drafts the same every time."""

from __future__ import annotations

import time

import numpy as np

from specdec.interfaces import Draft, ProposeBatch, Proposer


class Raises(Proposer):
    name = "raises"

    def propose(self, batch: ProposeBatch) -> Draft:
        raise RuntimeError("no")


class ReturnsNone(Proposer):
    name = "returns-none"

    def propose(self, batch: ProposeBatch) -> Draft:
        return None  # type: ignore[return-value]  # that is the point


class Outside(Proposer):
    name = "outside"

    def propose(self, batch: ProposeBatch) -> Draft:
        return Draft.from_lists([[10**6, -5, 3]] * batch.batch_size)


class Sleeps(Proposer):
    name = "sleeps"

    def propose(self, batch: ProposeBatch) -> Draft:
        time.sleep(0.2)
        return Draft.from_lists([[3]] * batch.batch_size)


class Writes(Proposer):
    name = "writes"

    def propose(self, batch: ProposeBatch) -> Draft:
        ids = batch.token_ids(0)
        ids.flags.writeable = True
        ids[:] = np.zeros_like(ids)
        return Draft.from_lists([[3]] * batch.batch_size)


class Same(Proposer):
    name = "same"

    def propose(self, batch: ProposeBatch) -> Draft:
        return Draft.from_lists([[7, 8, 9]] * batch.batch_size)
