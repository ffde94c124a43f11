"""Verifications that have begun, whose results the host has not read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from specdec.interfaces.pass_memory import VerdictOffsets
from specdec.interfaces.sampler import Verdict, VerifyBatch
from specdec.interfaces.scorer import Scores


@dataclass(frozen=True)
class AsyncVerdict:
    """A verification that has begun."""

    token_ids: torch.Tensor
    """`[B, N]` int64, N at least 1: the emitted tokens where the logits are, from which the next pass may take them."""
    num_accepted: torch.Tensor
    """`[B]` int64: accepted nodes of each request, likewise."""
    read: Callable[[], Verdict]
    """Waits for the verdict, and returns it."""
    offsets: VerdictOffsets | None = None
    """Where the memory of passes has the verdict; None if it is elsewhere."""
    has_appended: bool = False
    """Whether the tokens are in `VerifyBatch.table`."""
    paths: torch.Tensor | None = None
    """`[B, N]` int64 accepted nodes of trees on the device, padded with -1; None for chains."""


@runtime_checkable
class AsyncVerify(Protocol):
    """A `Verify` of a backend that need not wait for the device, and takes any rows (`Sampler.finds_invalid_rows`)."""

    def begin(self, scores: Scores, batch: VerifyBatch) -> AsyncVerdict | None:
        """Begin to decide a batch; None for one that it does not take."""
