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
from specdec_plugin_ngram.config import NgramConfig
from specdec_plugin_ngram.device_match import copy_from, find_sources
from specdec_plugin_ngram.device_tokens import DeviceTokens


class NgramGpuProposer(Proposer):
    """Drafts the same tokens as `ngram`, with tensor operations only and without synchronising with the device.

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
        first = self._keeps_first
        sources = find_sources(tokens, num_tokens, self._shortest, self._longest, keeps_first=first)
        return Draft(
            copy_from(tokens, num_tokens, sources, max_nodes, batch.max_nodes_bound, keeps_first=first)
        )

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        """Free the lines of these requests."""
        self._held.forget(request_ids)
