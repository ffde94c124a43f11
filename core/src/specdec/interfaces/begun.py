"""Verifications that have begun, whose results the host has not read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from specdec.interfaces.device_nodes import DeviceNodes
from specdec.interfaces.request_table import Places
from specdec.interfaces.sampler import Verdict, VerifyBatch
from specdec.interfaces.scorer import Scores


@dataclass(frozen=True)
class Begun:
    """A verification that has begun; called, it waits for the verdict, and returns it."""

    token_ids: torch.Tensor
    """`[B, N]` int64, N at least 1: the emitted tokens where the logits are, from which the next pass may take them."""
    read: Callable[[], Verdict]
    places: Places | None = None
    """Where the table has the verdict; None if it has none."""
    paths: torch.Tensor | None = None
    """See `Verdict.paths`."""

    def __call__(self) -> Verdict:
        """Return the verdict."""
        return self.read()


@runtime_checkable
class Begins(Protocol):
    """A `Verify` of a backend that need not wait for the device, and takes any rows (`Sampler.takes_any_rows`)."""

    def begin(self, scores: Scores, batch: VerifyBatch) -> Begun | None:
        """Begin to decide a batch; None for one that it does not take."""


class EmittedIds(DeviceNodes):
    """The first token that each request of a step emits, for the rows of the next step.

    Args:
        token_ids: `[B, N]` the emitted tokens.
        vocab_size: number of the target's ids.
    """

    def __init__(self, token_ids: torch.Tensor, vocab_size: int) -> None:
        super().__init__(token_ids[None, :, :1], [1] * len(token_ids), vocab_size)
