"""The input of a scorer in one step, and the cache interface that the engine needs.

These are protocols, not frozen dataclasses: the engine passes its own objects, because copies would cost time
in every step. A scorer reads only the attributes named here, and adds to `transfer` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from specdec.interfaces.adapter import Adapter
from specdec.interfaces.batch import TokenIds
from specdec.interfaces.device_nodes import DeviceNodes
from specdec.interfaces.row_block import LogitsRules
from specdec.interfaces.sent import Transfer
from specdec.interfaces.unread import UnreadVerdict
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
    def first_slot(self) -> int:
        """Slot of its first token; position i has slot `first_slot + i`. Drafted nodes follow in order."""

    @property
    def params(self) -> SamplingParams:
        """Its sampling parameters."""

    @property
    def rules(self) -> LogitsRules | None:
        """Its rules; None if only temperature, top-k, top-p and min-p apply."""

    @property
    def adapter(self) -> Adapter | None:
        """What `Scorer.load_adapter` returned for it; None for the target as it is."""


class ScoredRow(Protocol):
    """One running sample in one step: it runs `chunk` committed tokens from position `start` on, and then its drafted nodes."""

    @property
    def sequence(self) -> ScoredSequence:
        """The sample."""

    @property
    def start(self) -> int:
        """Number of its tokens whose keys and values are in the cache: the pass continues from there."""

    @property
    def chunk(self) -> int:
        """Number of committed tokens to run: 1 in decode, a chunk of a prompt in prefill, 0 to skip it."""

    @property
    def is_sampled(self) -> bool:
        """Whether a token is chosen for it in this step: its chunk reaches its last token, whose logits are then needed."""

    @property
    def num_nodes(self) -> int:
        """Number of its drafted nodes, whose logits are needed."""

    @property
    def nodes(self) -> Sequence[int]:
        """Drafted ids; none if `ScoreBatch.device_nodes` has them."""

    @property
    def parents(self) -> Sequence[int] | None:
        """The parent of every node, which precedes it; -1 is the last committed token. None for a chain, or if a
        device has them."""

    @property
    def prompt_rows(self) -> range:
        """Positions within the chunk whose logits prompt log probabilities need; mostly empty."""


class ScoreBatch(Protocol):
    """The tokens that one step runs."""

    @property
    def rows(self) -> Sequence[ScoredRow]:
        """The running samples."""

    @property
    def device_nodes(self) -> DeviceNodes | None:
        """The drafted nodes of the samples that get a token, if they are on a device and the host has not read them."""

    @property
    def behind(self) -> UnreadVerdict | None:
        """The verdict of the step before, with the last token of each sample, if the host has not read it."""

    @property
    def is_cut(self) -> bool:
        """Whether the sampler needs logits cut by top-k and top-p; else a scorer may leave that to it (`Scores.is_cut`)."""

    @property
    def transfer(self) -> Transfer | None:
        """What is sent to the device with the pass: what the sampler reads, slots of paths, and what the scorer adds; None for
        nothing."""


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
