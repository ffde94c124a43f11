"""`ngram`: prompt lookup on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch

from specdec.interfaces import (
    Capability,
    Draft,
    FinishReason,
    ProposeBatch,
    Proposer,
    ProposerConfig,
    TargetHandle,
    TargetInfo,
)
from specdec_plugin_ngram.config import NgramConfig
from specdec_plugin_ngram.index import NgramIndex


class NgramProposer(Proposer):
    """Copies the tokens that followed an earlier occurrence of the last n tokens, in the prompt or the output.

    Prompt lookup decoding (Saxena 2023), also LLMA (arXiv 2304.04487), with an incremental index: the time of a
    step does not grow with the context. `reference.draft` is the exact specification.
    """

    name: ClassVar[str] = "ngram"
    Config: ClassVar[type[ProposerConfig]] = NgramConfig
    capabilities = frozenset({Capability.LATE_DRAFTS})

    def __init__(self, config: NgramConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        shortest, longest = config.lengths
        self._keeps_first = config.match == "first"
        self._lengths = (shortest, longest)
        self._max_model_len = config.max_model_len
        self._index = NgramIndex(shortest, longest, keeps_first=self._keeps_first)

    def load(self, target: TargetHandle) -> None:
        """Compile the kernels, so that the first step is as fast as the others."""
        warm_up = NgramIndex(*self._lengths, keeps_first=self._keeps_first)
        warm_up.step(["warm-up"], [0], [2], np.zeros(2, dtype=np.int32), [1], [2])

    def propose(self, batch: ProposeBatch) -> Draft:
        """Index the new tokens and draft a chain for every row that has a match."""
        max_nodes = batch.max_nodes
        if self._max_model_len is not None:
            room = (max(0, self._max_model_len - held) for held in batch.num_tokens)
            max_nodes = list(map(min, max_nodes, room))
        token_ids, _ = self._index.step(
            batch.request_ids,
            batch.starts,
            batch.counts,
            batch.new_token_ids,
            max_nodes,
            batch.num_prompt_tokens,
        )
        return Draft(torch.from_numpy(token_ids))

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        """Drop the index of these requests."""
        self._index.forget(request_ids)
