"""`ngram_gpu`: prompt lookup on the target's device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch

from specdec.interfaces import (
    Capability,
    Draft,
    ProposeBatch,
    Proposer,
    ProposerConfig,
    RequestTable,
    TargetHandle,
    TargetInfo,
    sent,
)
from specdec_kernels.triton import ngram_match
from specdec_plugin_ngram.config import NgramConfig

_WIDTH_STEP = 256
"""On the CPU only so many tokens are read as the longest text has, rounded up to a multiple of this."""


class NgramGpuProposer(Proposer):
    """Drafts the same tokens as `ngram`, by the kernel `ngram_match` where the tokens are.

    Works on any torch device, from the engine's table of tokens. Every step compares the end of each text with the whole
    text, so unlike `ngram` its time grows with the context. On a device the host does not wait for drafts, nor for their
    lengths: each has as many tokens as are wanted, where there is no match the last one again. It is asked before the host
    has read what was accepted of the last draft.
    """

    name: ClassVar[str] = "ngram_gpu"
    Config: ClassVar[type[ProposerConfig]] = NgramConfig
    capabilities = frozenset({Capability.REQUEST_TABLE, Capability.BEFORE_VERDICT})

    def __init__(self, config: NgramConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        self._shortest, self._longest = config.lengths
        self._keeps_first = config.match == "first"
        self._max_model_len = config.max_model_len
        self._lines: tuple[list[int], torch.Tensor] = [], torch.empty(0, dtype=torch.int64)
        """Those of the last batch, on the host and on the device."""
        self._is_read = target.device.type == "cpu"
        """Whether the engine reads drafts at once, which costs nothing on the host."""

    @torch.inference_mode()
    def load(self, target: TargetHandle) -> None:
        """Compile the kernels of a device."""
        if not self._is_read:
            none = torch.zeros(1, dtype=torch.int64, device=self.target_info.device)
            assert self.config.num_speculative_tokens is not None
            shape = 1, self.target_info.max_model_len + 1
            table = RequestTable(none.new_zeros(shape, dtype=torch.int32), none)
            self._filled(table, none, self.config.num_speculative_tokens)

    @torch.inference_mode()
    def propose(self, batch: ProposeBatch) -> Draft:
        """Draft a chain for every row; on the CPU, for every row that has a match."""
        table, num_steps = batch.table, self.config.num_speculative_tokens
        assert table is not None and num_steps is not None
        limits, lines = self._limits(batch), self._sent(batch.lines, table.num_tokens.device)
        if self._is_read:
            return Draft(self._found(table, lines, limits))
        limits = [min(most, num_steps) for most in limits]
        drafts = self._filled(table, lines, num_steps) if any(limits) else lines[:, None]
        return Draft(drafts[:, : max(limits, default=0)], num_nodes=tuple(limits))

    def _sent(self, lines: Sequence[int], device: torch.device) -> torch.Tensor:
        """Return lines on the device, where those of the last batch are mostly."""
        if self._lines[0] != lines:
            self._lines = [*lines], sent(torch.tensor(lines, dtype=torch.int64), device)
        return self._lines[1]

    def _limits(self, batch: ProposeBatch) -> list[int]:
        """Return the most nodes of each draft: none for a text that is longer than what is held of it."""
        limits, most_held, most = list[int](), self.target_info.max_model_len, self._max_model_len
        for wanted, held in zip(batch.max_nodes, batch.num_tokens, strict=True):
            room = wanted if most is None else max(0, most - held)
            limits.append(min(wanted, room) if held <= most_held else 0)
        return limits

    def _found(self, table: RequestTable, lines: torch.Tensor, limits: list[int]) -> torch.Tensor:
        """Return drafts of at most `limits [B]` tokens, with -1 behind their ends; on the CPU."""
        width = max(limits, default=0)
        if not width:
            return lines[:, None][:, :0]
        longest = -(-int(table.num_tokens[lines].max()) // _WIDTH_STEP) * _WIDTH_STEP
        lengths = self._shortest, self._longest, width
        return ngram_match(
            table.token_ids[:, :longest],
            table.num_tokens,
            *lengths,
            lines=lines,
            max_nodes=torch.tensor(limits),
            keeps_first=self._keeps_first,
        ).token_ids

    def _filled(self, table: RequestTable, lines: torch.Tensor, width: int) -> torch.Tensor:
        """Return drafts `[B, width]`, with the last token in place of what there is no match for."""
        lengths = self._shortest, self._longest, width
        return ngram_match(
            table.token_ids,
            table.num_tokens,
            *lengths,
            lines=lines,
            keeps_first=self._keeps_first,
            fills=True,
        ).token_ids
