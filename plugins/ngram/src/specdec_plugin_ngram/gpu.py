"""`ngram_gpu`: prompt lookup on the target's device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch

from specdec.interfaces import (
    Capability,
    DeviceProposeBatch,
    Draft,
    FinishReason,
    Proposer,
    ProposerConfig,
    TargetHandle,
    TargetInfo,
)
from specdec_kernels.triton import ngram_match
from specdec_plugin_ngram.config import NgramConfig
from specdec_plugin_ngram.device_tokens import DeviceTokens


class NgramGpuProposer(Proposer):
    """Drafts the same tokens as `ngram`, by the kernel `ngram_match` where the tokens are; the engine reads them.

    Works on any torch device. All tokens are kept there, `[max_num_seqs, max_model_len]`. Every step compares
    the end of each text with the whole text, so unlike `ngram` its time grows with the context.
    """

    name: ClassVar[str] = "ngram_gpu"
    Config: ClassVar[type[ProposerConfig]] = NgramConfig
    capabilities = frozenset({Capability.ON_DEVICE})

    def __init__(self, config: NgramConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        self._shortest, self._longest = config.lengths
        self._keeps_first = config.match == "first"
        self._max_model_len = config.max_model_len
        self._held = DeviceTokens(target.max_num_seqs, target.max_model_len, target.device)

    def load(self, target: TargetHandle) -> None:
        """Allocate the token buffer before the target's cache takes the rest of the memory."""
        self._held.allocate()

    def propose(self, batch: DeviceProposeBatch) -> Draft:  # type: ignore[override]  # what ON_DEVICE asks for
        """Store the new tokens and draft a chain for every row that has a match."""
        tokens = self._held.take_in(batch.request_ids, batch.starts, batch.counts, batch.new_token_ids)
        num_tokens = batch.starts + batch.counts
        max_nodes = batch.max_nodes
        if self._max_model_len is not None:
            max_nodes = torch.minimum(max_nodes, self._max_model_len - num_tokens)
        width = batch.max_nodes_bound
        if not width:
            return Draft(tokens.new_empty((len(tokens), 0), dtype=torch.int64))
        first, lengths = self._keeps_first, (self._shortest, self._longest)
        drafted = ngram_match(tokens, num_tokens, *lengths, width, max_nodes=max_nodes, keeps_first=first)
        return Draft(drafted.token_ids)

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        """Free the lines of these requests."""
        self._held.forget(request_ids)
