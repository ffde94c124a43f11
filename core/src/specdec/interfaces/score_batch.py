"""What a scorer is given for one step, and what the engine needs of its cache.

Protocols and not frozen dataclasses, because the engine hands over what it works with itself: copies would cost every step.
A scorer reads these names and no others, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import torch

from specdec.interfaces.batch import HostIds
from specdec.sampling_params import SamplingParams

if TYPE_CHECKING:
    from specdec.logits.rules import RequestRules


class ScoredSequence(Protocol):
    """A running sample of a request, to be read only."""

    @property
    def token_ids(self) -> HostIds:
        """All committed tokens, prompt included, as a read-only view `[n]` int32."""

    @property
    def num_prompt_tokens(self) -> int:
        """How many of them are the prompt."""

    @property
    def num_computed(self) -> int:
        """How many of them have their keys and values in the cache: the pass goes on from there."""

    @property
    def first_slot(self) -> int:
        """Slot of its first token. That of the token at position i is `first_slot + i`; drafted nodes follow in draft order."""

    @property
    def params(self) -> SamplingParams:
        """Its sampling parameters."""

    @property
    def rules(self) -> RequestRules | None:
        """What changes its logits beyond temperature and cuts: penalties, biases, grammar; `specdec.logits.p_logits`
        applies them."""

    def missing_prompt_rows(self, chunk: int) -> range:
        """Return the positions among its next `chunk` tokens whose logits are wanted for log probabilities of the prompt."""


class ScoreBatch(Protocol):
    """What one step runs. All of it has one entry per running sequence but `decoding`."""

    @property
    def sequences(self) -> Sequence[ScoredSequence]:
        """The running sequences."""

    @property
    def chunks(self) -> Sequence[int]:
        """Committed tokens to run: 1 while decoding, a piece of the prompt before, 0 to leave a sequence out of this pass."""

    @property
    def decoding(self) -> Sequence[int]:
        """`[B]`: indices of the sequences that sample in this step, whose chunk reaches their last committed token."""


class SlotCache(Protocol):
    """The target's keys and values, one slot per token. The engine says which slots are whose; a scorer fills them."""

    @property
    def num_slots(self) -> int:
        """Slots that there are."""

    @property
    def device(self) -> torch.device:
        """Where indices of slots are wanted."""

    def copy(self, source: int, destination: int, num_rows: int) -> None:
        """Copy `num_rows` consecutive slots; the ranges may overlap."""

    def gather(self, sources: torch.Tensor, destination: int) -> None:
        """Copy the slots `sources` `[n]` int64 to consecutive ones from `destination` on: the accepted path of a tree."""
