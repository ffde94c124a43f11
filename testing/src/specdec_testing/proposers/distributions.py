"""If drafts carry q, q is the distribution they were drawn from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from specdec.interfaces import Capability, DraftSampling, FinishReason
from specdec_testing.proposers.suite import ProposerSuite
from specdec_testing.support.feed import Ask, Feed
from specdec_testing.support.honesty import MAX_NODES, NUM_DRAWS, Tally
from specdec_testing.support.rows import Row
from specdec_testing.support.target import MAX_BATCH
from specdec_testing.support.verdicts import broken, not_applicable

_LENGTHS = (4, 12, 40, 64)
"""Text lengths to draft after; the first one that gives drawn tokens is used, because shorter texts are faster."""


class DistributionTests(ProposerSuite):
    """`node_probs`: rows are distributions, each draw is used once, and tokens follow their q."""

    def test_q_is_a_distribution(self) -> None:
        """Every row of q is a distribution over the target's ids and gives the drafted token a probability above 0.

        To fix: return the softmax that the token was drawn from, after temperature and truncation, with ids that the target
        lacks masked before; row 0 belongs to the children of the last committed token, row j + 1 to those of node j. A
        `vocab_map` holds distinct target ids.
        """
        feed = self._drawing()
        for row in next(self._drafts(feed)):
            if row.probs is not None:
                self._check_probs(row)

    def test_no_draw_is_used_twice(self) -> None:
        """Every drafted node has its own noise.

        To fix: pass to `draws.sample` the node's index in its row; two nodes with the same index share their noise.
        """
        feed = self._drawing()
        next(self._drafts(feed))
        assert feed.draws is not None
        twice = [key for key, count in feed.draws.sampled.items() if count > 1]
        if twice:
            broken(f"node {twice[0][1]} of row {twice[0][0]} was drawn for more than once in one call")

    def test_tokens_follow_their_q(self) -> None:
        """Over 20,000 drafts the drawn tokens follow their q, also conditional on the previously drawn token.

        To fix: `tokens, q = batch.draws.sample(logits, rows, node)` is exact by construction; return that q unchanged.
        Whether a node is in the draft may depend on earlier nodes, never on its own token: do not drop a node for its token.
        """
        tally = Tally(self._vocab_size)
        for rows in self._drafts(self._drawing()):
            tally.add(rows)
            if tally.num_draws >= NUM_DRAWS:
                break
        if (complaint := tally.complaint()) is not None:
            broken(complaint)

    def _drawing(self) -> Feed:
        """Return a feed for a proposer that samples its drafts: as configured, or with sampling enabled if the class can."""
        if Capability.DRAFT_PROBS not in self._checked.proposer_class.capabilities:
            not_applicable("DRAFT_PROBS is not declared")
        changes: dict[str, Any] = {}
        if Capability.DRAFT_PROBS not in self._capabilities:
            if "draft_sample_method" in self.config:
                not_applicable(
                    f"draft_sample_method is {self.config['draft_sample_method']!r}, which gives no q"
                )
            changes["draft_sample_method"] = "probabilistic"
        feed = self._feed(**changes)
        if Capability.DRAFT_PROBS not in feed.proposer.capabilities:
            not_applicable("DRAFT_PROBS is not declared for this configuration")
        return feed

    def _drafts(self, feed: Feed) -> Iterator[list[Row]]:
        """Yield drafts for batches of new requests with different seeds, after the same few texts."""
        cap = min(self._k, MAX_NODES)
        length = next((n for n in _LENGTHS if _has_q(self._batch(feed, n, 0, cap))), None)
        if length is None:
            broken("DRAFT_PROBS is declared and no draft came with q")
        for number in range(1, 2 + 2 * NUM_DRAWS // MAX_BATCH):
            yield self._batch(feed, length, number, cap)

    def _batch(self, feed: Feed, length: int, number: int, cap: int) -> list[Row]:
        names = [f"drawn-{number}-{row}" for row in range(MAX_BATCH)]
        for row, name in enumerate(names):
            text = self._texts[row % len(self._texts)]
            feed.add(name, text[:length], length, seed=number * MAX_BATCH + row)
        rows = list(feed.call(dict.fromkeys(names, Ask(length, cap))).values())
        feed.finish(names, FinishReason.ABORT)
        return rows

    def _check_probs(self, row: Row) -> None:
        assert row.probs is not None
        if row.sampling is DraftSampling.DETERMINISTIC:
            broken("a row has q and Draft.sampling says DETERMINISTIC: say IID or WITHOUT_REPLACEMENT")
        size = row.probs.shape[-1]
        ids = torch.arange(size) if row.vocab_map is None else row.vocab_map
        if len(ids) != size or (row.vocab_map is None and size != self._vocab_size):
            broken(
                f"q has {size} ids, {'the target' if row.vocab_map is None else 'vocab_map'} has another number"
            )
        if len(ids) and (
            int(ids.min()) < 0 or int(ids.max()) >= self._vocab_size or len(ids.unique()) < len(ids)
        ):
            broken("vocab_map names an id twice, or one that the target does not have")
        for node, (token, parent) in enumerate(zip(row.tokens, row.parents, strict=True)):
            probs = row.probs[parent + 1].double()
            if not bool(torch.isfinite(probs).all()) or bool((probs < 0).any()):
                broken(f"q of node {node} has entries that are not probabilities")
            if abs(float(probs.sum()) - 1.0) > 1e-3:
                broken(f"q of node {node} sums to {float(probs.sum()):.4f}")
            if not float(row.probs_of(node, self._vocab_size)[token]) > 0.0:
                broken(f"node {node} is token {token}, to which its q gives probability 0")


def _has_q(rows: list[Row]) -> bool:
    return any(row.tokens and row.probs is not None for row in rows)
