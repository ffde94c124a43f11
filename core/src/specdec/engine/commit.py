"""Makes a verdict final: tokens, cache rows, counters, hidden states."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from specdec.engine.delivery import Delivery
from specdec.engine.kv_manager import KVManager
from specdec.engine.plan import Plan
from specdec.engine.sequence import Sequence
from specdec.engine.stopping import StopWatch
from specdec.interfaces.draft import Draft
from specdec.interfaces.sampler import Verdict
from specdec.interfaces.scorer import Scores
from specdec.runner.kv_cache import KVCache


@dataclass(slots=True)
class Committed:
    """What one step did."""

    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_emitted_tokens: int = 0
    num_accepted: list[int] = field(default_factory=list)
    """Drafted tokens that stood and were kept, for each sequence that sampled."""


class Committer:
    """Applies verdicts to sequences.

    Args:
        kv: publishes written blocks.
        cache: whose rows are compacted after a tree.
        delivery: keeps hidden states; None without a proposer.
    """

    def __init__(self, kv: KVManager, cache: KVCache, delivery: Delivery | None) -> None:
        self._kv = kv
        self._cache = cache
        self._delivery = delivery

    def commit(
        self, plan: Plan, draft: Draft, scores: Scores, verdict: Verdict, watches: dict[str, StopWatch]
    ) -> Committed:
        """Commit one step; sequences that end are marked finished."""
        rows = draft.host_rows
        assert rows is not None
        done = Committed()
        row_of_decoding = {index: row for row, index in enumerate(plan.decoding)}
        for index, (sequence, chunk) in enumerate(zip(plan.sequences, plan.chunks, strict=True)):
            if chunk == 0:
                continue
            row = row_of_decoding.get(index)
            nodes: list[int] = []
            emitted: list[int] = []
            if row is not None:
                emitted = watches[sequence.request_id].accept(list(verdict.token_ids[row]))
                nodes = list(verdict.accepted_nodes[row][: len(emitted)])
                self._count(done, sequence, len(rows[row]), len(nodes), len(emitted))
            self._keep_rows(sequence, chunk, nodes)
            if self._delivery is not None and self._delivery.needs_hidden:
                # The row of the last emitted token, where a stop cut the draft behind it, chose nothing that was kept.
                chosen = [*range(chunk), *(chunk + node for node in nodes[: max(0, len(emitted) - 1)])]
                self._delivery.keep_hidden(
                    sequence, scores, [scores.first_rows[index] + row for row in chosen]
                )
            sequence.num_computed += chunk + len(nodes)
            if emitted:
                sequence.append(emitted, len(nodes))
            self._kv.publish(sequence)
        return done

    def _keep_rows(self, sequence: Sequence, chunk: int, nodes: list[int]) -> None:
        """Move the accepted rows of a tree together; those of a chain lie together already."""
        if nodes and nodes[-1] != len(nodes) - 1:
            first = sequence.first_slot + sequence.num_computed + chunk
            sources = torch.tensor(nodes, device=self._cache.device) + first
            self._cache.gather(sources, first)

    def _count(
        self, done: Committed, sequence: Sequence, num_drafted: int, num_accepted: int, num_emitted: int
    ) -> None:
        sequence.last_num_drafted, sequence.last_num_accepted = num_drafted, num_accepted
        done.num_emitted_tokens += num_emitted
        done.num_accepted.append(num_accepted)
        if num_drafted:
            sequence.count_draft(num_drafted, num_accepted)
            done.num_drafts += 1
            done.num_draft_tokens += num_drafted
            done.num_accepted_tokens += num_accepted
