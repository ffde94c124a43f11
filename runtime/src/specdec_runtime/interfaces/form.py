"""A form of a model: one way to run its passes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch

from specdec_runtime.interfaces.chain import Chain
from specdec_runtime.interfaces.forward import ForwardOutput, PackedBatch


@dataclass(frozen=True)
class PassLimits:
    """The most of one pass."""

    num_requests: int
    num_rows: int
    num_logits: int
    """Rows that have logits."""


class Form(ABC):
    """Runs the passes of one model, or of one stage of a head, on its runner's cache.

    Forms are nested: a form runs what it is fast for, and gives all other passes to the form inside it. The innermost is the
    module's own forward.
    """

    is_invariant: bool = False
    """Whether the logits of a row are bit-identical in any pass."""
    is_fast: bool = True
    """Whether it runs passes by itself; False if it gives each to the form inside it, to count them for instance."""
    uses_attention: bool = False
    """Whether it reads the cache by `Runner.attention` alone, and so also rows that requests share (`KVCache.shared`)."""
    reserved_bytes: int = 0
    """Most device memory that the form may take later, for instance for captured graphs."""

    @abstractmethod
    def forward(self, batch: PackedBatch, features: torch.Tensor | None) -> ForwardOutput:
        """Run a pass and write its keys and values to the cache; which hidden states it returns, `Runner.wanted` says.

        Args:
            batch: the tokens.
            features: `[T, F]` for heads, else None.
        """

    @property
    def chain(self) -> Chain | None:
        """A draft loop that runs without returning to Python between steps; None if there is none."""
        return None

    def rebind(self) -> None:  # noqa: B027  most forms look their cache up
        """Follow the runner, whose cache was allocated, or whose passes now return other hidden states."""

    def warm_up(self, batch: PackedBatch, features: torch.Tensor | None) -> None:  # noqa: B027  most have nothing to compile
        """Run a short pass in each way that a pass may take here, so that no request compiles anything."""

    def prepare(self, limits: PassLimits) -> None:  # noqa: B027  most record nothing
        """Record or compile passes of up to such sizes; the cache is allocated, and only its padding may be written."""

    def counts(self) -> dict[str, int]:
        """Return counters for the metrics, by name."""
        return {}

    def levels(self) -> dict[str, int]:
        """Return gauges for the metrics, by name."""
        return {}
