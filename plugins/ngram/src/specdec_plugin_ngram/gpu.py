"""`ngram_gpu`: prompt lookup on the target's device."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from specdec.interfaces import (
    Draft,
    FinishReason,
    ProposeBatch,
    Proposer,
    ProposerConfig,
    TargetHandle,
    TargetInfo,
)
from specdec.runner import in_inference_mode, sent_together
from specdec_kernels import can_record
from specdec_kernels.triton import ngram_match
from specdec_plugin_ngram.config import NgramConfig
from specdec_plugin_ngram.device_texts import DeviceTexts, Int64s, Taken

if TYPE_CHECKING:
    from specdec_kernels.cuda.graphs import TextGraphs

_WIDTH_STEP = 256
"""On the CPU only so many tokens are read as the longest text has, rounded up to a multiple of this."""


class NgramGpuProposer(Proposer):
    """Drafts the same tokens as `ngram`, by the kernel `ngram_match` where the tokens are.

    Works on any torch device. All tokens are kept there, `[2 * max_num_seqs, max_model_len]`. Every step compares
    the end of each text with the whole text, so unlike `ngram` its time grows with the context. On a device the host does not
    wait for drafts, nor for their lengths: each has as many tokens as are wanted, where there is no match the last one again.
    What follows the verdict on the last draft is looked up before the host has read that.
    """

    name: ClassVar[str] = "ngram_gpu"
    Config: ClassVar[type[ProposerConfig]] = NgramConfig

    def __init__(self, config: NgramConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        self._shortest, self._longest = config.lengths
        self._keeps_first = config.match == "first"
        self._max_model_len = config.max_model_len
        self._held = DeviceTexts(target.max_num_seqs, target.max_model_len, target.device)
        self._graphs: TextGraphs | None = None
        self._is_read = target.device.type == "cpu"
        """Whether the engine reads drafts at once, which costs nothing on the host."""

    @in_inference_mode
    def load(self, target: TargetHandle) -> None:
        """Allocate the texts before the target's cache takes the rest of the memory, and record or compile all lookups."""
        texts, num_steps, info = self._held.texts, self.config.num_speculative_tokens, self.target_info
        assert num_steps is not None
        if self._is_read:
            return
        none = torch.zeros(1, dtype=torch.int64, device=texts.device)
        self._filled(none, none, num_steps)
        if can_record(info):
            from specdec_kernels.cuda.graphs import CudaRecorder, TextGraphs

            look_up = partial(self._filled, width=num_steps)
            self._graphs = TextGraphs(CudaRecorder(texts.device), texts, look_up, num_steps, target.table)
            self._graphs.prepare(info.max_num_seqs)

    @in_inference_mode
    def propose(self, batch: ProposeBatch) -> Draft:
        """Store the new tokens and draft a chain for every row; on the CPU, for every row that has a match."""
        taken, num_steps = self._held.take(batch), self.config.num_speculative_tokens
        assert num_steps is not None
        limits = self._limits(batch)
        if self._is_read:
            return Draft(self._read(taken, np.array(limits)))
        limits = [min(most, num_steps) for most in limits]
        drafts = None
        if self._graphs is not None and self._graphs.texts is self._held.texts:
            drafts = self._graphs.draft(*taken)
        if drafts is None:
            lines, num_tokens = self._write(taken, (taken.lines, taken.num_tokens))
            drafts = self._filled(lines, num_tokens, num_steps) if any(limits) else lines[:, None]
        return Draft(drafts[:, : max(limits, default=0)], num_nodes=tuple(limits))

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        """Free the lines of these requests."""
        self._held.forget(request_ids)

    def _limits(self, batch: ProposeBatch) -> list[int]:
        """Return the most nodes of each draft: none for a text that is longer than what is held of it."""
        limits, most_held, most = list[int](), self.target_info.max_model_len, self._max_model_len
        for wanted, held in zip(batch.max_nodes, batch.num_tokens, strict=True):
            room = wanted if most is None else max(0, most - held)
            limits.append(min(wanted, room) if held <= most_held else 0)
        return limits

    def _read(self, taken: Taken, limits: Int64s) -> torch.Tensor:
        """Return drafts of at most `limits [B]` tokens, with -1 behind their ends."""
        lines, num_tokens, max_nodes = self._write(taken, (taken.lines, taken.num_tokens, limits))
        width = int(max(limits, default=0))
        if not width:
            return lines[:, None][:, :0]
        longest = -(-max(taken.num_tokens) // _WIDTH_STEP) * _WIDTH_STEP
        lengths = self._shortest, self._longest, width
        return ngram_match(
            self._held.texts[:, :longest],
            num_tokens,
            *lengths,
            lines=lines,
            max_nodes=max_nodes,
            keeps_first=self._keeps_first,
        ).token_ids

    def _filled(self, lines: torch.Tensor, num_tokens: torch.Tensor, width: int) -> torch.Tensor:
        """Return drafts `[B, width]`, with the last token in place of what there is no match for."""
        lengths = self._shortest, self._longest, width
        return ngram_match(
            self._held.texts, num_tokens, *lengths, lines=lines, keeps_first=self._keeps_first, fills=True
        ).token_ids

    def _write(self, taken: Taken, others: Sequence[Int64s]) -> list[torch.Tensor]:
        """Send new tokens to their lines; returns `others` on the device."""
        texts = self._held.texts
        new = taken.rows.token_ids.astype(np.int32)
        token_ids, slots, *sent = sent_together([new, taken.slots, *others], texts.device)
        texts.view(-1).index_put_((slots,), token_ids)
        return sent
