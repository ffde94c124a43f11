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
from specdec_kernels.triton import ChainDraft, ngram_match
from specdec_plugin_ngram.config import NgramConfig
from specdec_plugin_ngram.device_tokens import DeviceTokens


class NgramGpuProposer(Proposer):
    """Drafts the same tokens as `ngram`, by the kernel `ngram_match` where the tokens are.

    Works on any torch device. All tokens are kept there, `[max_num_seqs, max_model_len]`. Every step compares
    the end of each text with the whole text, so unlike `ngram` its time grows with the context. On a device the host does not
    wait for drafts, nor for their lengths: each has as many tokens as are wanted, where there is no match the last one again.
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
        self._is_read = target.device.type == "cpu"
        """Whether the engine reads drafts at once, which costs nothing on the host."""

    def load(self, target: TargetHandle) -> None:
        """Allocate the token buffer before the target's cache takes the rest of the memory, and compile the kernels."""
        buffer = self._held.allocate()
        if not self._is_read:
            none = torch.zeros(1, dtype=torch.int64, device=buffer.device)
            for width in self._held.widths:
                self._match(buffer[:1, :width], none, self.config.num_speculative_tokens, none)

    def propose(self, batch: DeviceProposeBatch) -> Draft:  # type: ignore[override]  # what ON_DEVICE asks for
        """Store the new tokens and draft a chain for every row that has a match."""
        tokens = self._held.take_in(batch.request_ids, batch.starts, batch.new_token_ids)
        max_nodes = batch.max_nodes
        if self._max_model_len is not None:
            max_nodes = torch.minimum(max_nodes, self._max_model_len - batch.num_tokens)
        if not any(batch.limits):
            return Draft(batch.new_token_ids[:, :0])
        width = max(self.config.num_speculative_tokens, *batch.limits)
        drafted = self._match(tokens, batch.num_tokens, width, max_nodes)
        return Draft(drafted.token_ids, num_nodes=None if self._is_read else batch.limits)

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        """Free the lines of these requests."""
        self._held.forget(request_ids)

    def _match(
        self, tokens: torch.Tensor, num_tokens: torch.Tensor, width: int, max_nodes: torch.Tensor
    ) -> ChainDraft:
        return ngram_match(
            tokens,
            num_tokens,
            self._shortest,
            self._longest,
            width,
            max_nodes=max_nodes,
            keeps_first=self._keeps_first,
            fills=not self._is_read,
        )
