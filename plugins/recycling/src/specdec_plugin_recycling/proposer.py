"""Token recycling (Luo et al. 2024, arXiv 2408.08696), with trees by probability instead of a fixed one."""

from __future__ import annotations

from collections.abc import Sequence

from specdec import ConfigError
from specdec.interfaces import (
    Capability,
    Draft,
    FinishReason,
    ProposeBatch,
    Proposer,
    ProposerConfig,
    TargetInfo,
)
from specdec_plugin_recycling.config import RecyclingConfig
from specdec_plugin_recycling.successors import Successors, SuccessorTable, successors_of
from specdec_plugin_recycling.tree import grow


class RecyclingProposer(Proposer):
    """Drafts what the target held for probable when it last saw each token; its guesses cost no pass of a model.

    Where the engine does not give these (see `TargetInfo.gives`), successors are those of the committed text. Where it
    verifies no trees, only the most probable successor is drafted.
    """

    name = "recycling"
    Config = RecyclingConfig
    capabilities = frozenset({Capability.TARGET_TOP_K, Capability.TREE})

    def __init__(self, config: ProposerConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        assert isinstance(config, RecyclingConfig)
        if config.num_successors > target.vocab_size:
            raise ConfigError(
                f"speculative_config: num_successors = {config.num_successors} is above the vocabulary of {target.vocab_size}"
            )
        self.capabilities = type(self).capabilities & target.gives
        self.num_top_k = config.num_successors
        self._least = config.min_probability
        self._learned: dict[int, Successors] = {}
        self._tables: dict[str, SuccessorTable] = {}

    def propose(self, batch: ProposeBatch) -> Draft:
        """Take in what the target held for probable; return a tree for each row that wants a draft."""
        is_chain = Capability.TREE not in self.capabilities
        tables = [self._table(batch, row) for row in range(batch.batch_size)]
        if batch.top_k is not None:
            for row, node, token_id, successors in successors_of(batch.top_k):
                # A node is at most as deep as its number tells.
                tables[row].set(token_id, successors, tables[row].num_tokens + 1 + node)
        trees = []
        for row, (table, most) in enumerate(zip(tables, batch.max_nodes, strict=True)):
            ids, start, end = batch.token_ids(row), batch.starts[row], batch.starts[row] + batch.counts[row]
            table.add_text(ids[max(0, start - 1) : end].tolist(), end)
            trees.append(grow(table, int(ids[-1]), most, self._least, is_chain=is_chain))
        return Draft.from_lists(
            [tree.token_ids for tree in trees],
            None if is_chain else [tree.parents for tree in trees],
            confidence=[tree.confidence for tree in trees],
        )

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        """Drop these requests' tables; what those that ended well taught is kept for others."""
        for request_id in request_ids:
            table = self._tables.pop(request_id, None)
            if table is not None and reason in (FinishReason.STOP, FinishReason.LENGTH):
                self._learned |= table.seen

    def _table(self, batch: ProposeBatch, row: int) -> SuccessorTable:
        """Return a request's table, without what it saw from the first new token on."""
        request_id, start = batch.request_ids[row], batch.starts[row]
        table = self._tables.setdefault(request_id, SuccessorTable(self._learned))
        if start < table.num_tokens:
            table.forget(start)
        return table
