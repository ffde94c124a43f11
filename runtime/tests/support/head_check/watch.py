"""What a proposer inside an engine drafts."""

from __future__ import annotations

from typing import Any

from head_check.target import VOCAB
from specdec import LLM
from specdec.interfaces import Draft, FinishReason, ProposeBatch
from specdec_runtime.drafting import RowsProposer
from specdec_testing.support.rows import Row, rows_of

PROMPTS = [[(i * i + 7 * i + n) % VOCAB for i in range(n)] for n in (11, 1, 2, 25, 7)]
ENGINES: dict[str, dict[str, Any]] = {
    "plain": {},
    "eager": {"enforce_eager": True},
    "chunks": {"max_num_batched_tokens": 9, "max_num_seqs": 3},
    "preempted": {
        "block_size": 4,
        "max_num_seqs": 5,
        "num_gpu_blocks_override": 26,
        "max_num_batched_tokens": 40,
    },
    "cached": {"block_size": 2, "max_num_batched_tokens": 40},
}


class Watch:
    """Keeps what a proposer inside an engine is told and drafts.

    Args:
        llm: the engine.
    """

    def __init__(self, llm: LLM) -> None:
        proposer = llm._built.engine.proposer
        assert isinstance(proposer, RowsProposer)
        self.proposer, self._propose, self._finish = proposer, proposer.propose, proposer.finish
        proposer.propose = self.propose  # type: ignore[method-assign]  # a watch
        proposer.finish = self.finish  # type: ignore[method-assign]  # ditto
        self.drafts: list[tuple[str, list[int], Row]] = []
        """Request, its text at that time, and the row."""

    @property
    def states(self) -> dict[str, Any]:
        """What the proposer holds of each request."""
        states: dict[str, Any] = self.proposer._rows.states  # type: ignore[attr-defined]  # of proposers with rows
        return states

    def propose(self, batch: ProposeBatch) -> Draft:
        draft = self._propose(batch)
        rows = rows_of(draft, batch.batch_size)
        for index, name in enumerate(batch.request_ids):
            text = batch.token_ids(index).tolist()
            assert batch.starts[index] + batch.counts[index] <= len(text)
            if rows[index].tokens:
                self.drafts.append((name, text, rows[index]))
        return draft

    def finish(self, request_ids: Any, reason: FinishReason) -> None:
        self._finish(request_ids, reason)
        assert not set(request_ids) & set(self.states)
