"""The input of a scorer in one step, and the cache interface that the engine needs.

These are protocols, not frozen dataclasses: the engine passes its own objects, because copies would cost time
in every step. A scorer reads only the attributes named here and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from specdec.interfaces.batch import TokenIds
from specdec.interfaces.logits_rules import LogitsRules
from specdec.interfaces.unread import UnreadIds
from specdec.sampling_params import SamplingParams


class ScoredSequence(Protocol):
    """A running sample of a request; read-only."""

    @property
    def token_ids(self) -> TokenIds:
        """All committed tokens, prompt included, as a read-only view `[n]` int32."""

    @property
    def num_prompt_tokens(self) -> int:
        """Number of tokens of the prompt."""

    @property
    def num_computed(self) -> int:
        """Number of tokens whose keys and values are in the cache: the pass continues from there."""

    @property
    def first_slot(self) -> int:
        """Slot of its first token; position i has slot `first_slot + i`. Drafted nodes follow in order."""

    @property
    def params(self) -> SamplingParams:
        """Its sampling parameters."""

    @property
    def rules(self) -> LogitsRules | None:
        """Its rules; None if only temperature, top-k, top-p and min-p apply."""

    def missing_prompt_rows(self, chunk: int) -> range:
        """Return the positions among its next `chunk` tokens whose logits prompt log probabilities need."""


class ScoreBatch(Protocol):
    """The tokens that one step runs. All fields but `decoding` have one entry per running sequence."""

    @property
    def sequences(self) -> Sequence[ScoredSequence]:
        """The running sequences."""

    @property
    def chunks(self) -> Sequence[int]:
        """Number of committed tokens to run: 1 in decode, a prompt chunk in prefill, 0 to skip a sequence."""

    @property
    def decoding(self) -> Sequence[int]:
        """`[B]`: indices of the sequences that sample in this step: their chunk reaches the last token."""

    @property
    def unread(self) -> tuple[UnreadIds, Sequence[int]] | None:
        """The last token of each sequence, if the host has not read it, and its row there; None if it has read all."""


class SlotCache(Protocol):
    """The target's KV cache, one slot per token. The engine assigns the slots; the scorer fills them."""

    @property
    def num_slots(self) -> int:
        """Number of slots."""

    @property
    def device(self) -> torch.device:
        """Device on which slot indices are expected."""

    def copy(self, source: int, destination: int, num_rows: int) -> None:
        """Copy `num_rows` consecutive slots; the ranges may overlap."""

    def gather(self, first_slots: torch.Tensor, paths: torch.Tensor) -> None:
        """Copy slots `first_slots[i] + paths[i, j]` to `first_slots[i] + j`, all at once; paths `[m, n]` int64 end with -1."""
