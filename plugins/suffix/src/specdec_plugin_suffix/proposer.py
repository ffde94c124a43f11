"""`suffix`: drafts from suffix trees, on the CPU."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import ClassVar

from specdec.interfaces import (
    Capability,
    Draft,
    FinishReason,
    ProposeBatch,
    Proposer,
    ProposerConfig,
    RequestArgs,
    TargetHandle,
    TargetInfo,
)
from specdec_plugin_suffix.cache import compile_all, implementation
from specdec_plugin_suffix.config import SuffixArgs, SuffixConfig
from specdec_plugin_suffix.drafts import chains, trees
from specdec_plugin_suffix.keeper import CacheKeeper
from specdec_plugin_suffix.trees import SuffixCounters, SuffixTrees
from specdec_plugin_suffix.zoo import ZOO, zoo_responses

logger = logging.getLogger("specdec")

TEACHING = frozenset({FinishReason.STOP, FinishReason.LENGTH})
"""Finish reasons after which a response is complete and is learnt from."""


class SuffixProposer(Proposer):
    """Drafts the continuation of earlier matches of the text's suffix, in its own text or in responses of finished requests.

    SuffixDecoding (arXiv 2411.04975), on suffix trees of Arctic Inference or of this package (`cache.make_cache`). Every match
    length is tried; the draft with the most expected tokens, by counts, is chosen. `reference.drafts` is the specification.
    """

    name: ClassVar[str] = "suffix"
    Config: ClassVar[type[ProposerConfig]] = SuffixConfig
    Args: ClassVar[type[RequestArgs]] = SuffixArgs
    implementation: ClassVar[str] = implementation()
    capabilities = frozenset({Capability.TREE, Capability.LATE_DRAFTS})

    def __init__(self, config: SuffixConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        self._is_tree = config.use_tree_spec
        if not self._is_tree:
            self.capabilities = type(self).capabilities - {Capability.TREE}
        self._max_model_len = config.max_model_len
        self._trees = SuffixTrees(config)
        self._path = config.suffix_decoding_cache_path
        self._budget_ms = config.suffix_decoding_time_budget_ms
        self._has_warned = False
        self._keeper: CacheKeeper | None = None

    @property
    def counters(self) -> SuffixCounters:
        """Counters of the effects of the time budget."""
        return self._trees.counters

    def load(self, target: TargetHandle) -> None:
        """Compile, and read the cache file, if it is configured and exists; some seconds per million tokens.

        Raises:
            ConfigError: if the file cannot be read or belongs to another tokenizer, or if the zoo has none for the target.
        """
        logger.info("suffix: %s", self.implementation)
        compile_all(self._trees.depth)
        if self._path is not None:
            is_zoo = self._path == ZOO
            path = zoo_responses(target.config) if is_zoo else self._path
            self._keeper = CacheKeeper(path, self._trees.memory, self.target_info, is_read_only=is_zoo)
            self._keeper.read()
            self._keeper.write_at_end_of(self)

    def save(self) -> None:
        """Write the cache file now; does nothing without a writable file or new responses.

        Raises:
            OSError: if it cannot be written.
        """
        if self._keeper is not None:
            self._keeper.write()

    def propose(self, batch: ProposeBatch) -> Draft:
        """Insert the new tokens and draft a chain or a tree for every row that has a match."""
        max_nodes, room = batch.max_nodes, None
        if self._max_model_len is not None:
            room = [max(0, self._max_model_len - held) for held in batch.num_tokens]
            if self._is_tree:
                max_nodes = [nodes if left else 0 for nodes, left in zip(max_nodes, room, strict=True)]
            else:
                max_nodes = list(map(min, max_nodes, room))
        found = self._trees.step(batch, max_nodes)
        if self.counters.num_rows_without_time and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "suffix: the trees took longer than suffix_decoding_time_budget_ms=%s in a step, so some requests got no "
                "draft in it; output is not affected, this is logged once and counted", self._budget_ms
            )  # fmt: skip
        return trees(found, room) if self._is_tree else chains(found)

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        """Drop the trees of these requests; completed responses are kept for later requests."""
        self._trees.close(request_ids, is_lesson=reason in TEACHING)
