"""A backend: faster code for what core does with torch.

Core verifies with torch. Before that it asks the installed backends in order (entry-point group `specdec.backends`), and each
answers with an implementation or with the reason why not. Core compares an implementation with its own on a small problem
before it is used. A scorer may ask for more, as `specdec_runtime.interfaces.ModelBackend` says.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy.typing as npt
import torch

from specdec.interfaces.row_operations import RowOperations
from specdec.interfaces.sampler import Verdict, VerifyBatch
from specdec.interfaces.scorer import Scores

Verify = Callable[[Scores, VerifyBatch], Verdict | None]
"""Decides a batch as `Sampler.verify` does; None for a batch that it does not take, which torch then decides. With an
attribute `cuts` that is true it takes scores that are not cut (`Scores.is_cut`)."""


@runtime_checkable
class ReadsTransfer(Protocol):
    """A `Verify` that finds in `VerifyBatch.transfer` what it reads on the device beside the logits."""

    finds_invalid_rows: bool
    """Whether it finds rows that are not numbers itself; otherwise they are made uniform first."""
    growing: int
    """Which of its arrays has `VerifyBatch.num_tokens`."""

    def arrays(self, batch: VerifyBatch) -> Sequence[npt.NDArray[Any]]:
        """Return what it reads of a batch, in the order in which it takes it; for trees core adds arrays of its own behind."""


@dataclass(frozen=True)
class Declined:
    """A backend's answer where it has nothing to offer."""

    reason: str
    """A clause, such as "its layers are made of self_attn, mlp, norm"."""
    is_elsewhere: bool = False
    """Whether the backend is for other devices; such an answer is shown by `specdec doctor`, but not worth a warning."""


@dataclass(frozen=True)
class Compiled:
    """What is compiled of a backend and on disk, so that no start compiles it."""

    target: str
    """The processor or device that it is compiled for."""
    num_ahead: int
    """Functions that came compiled with the package."""
    num_kept: int
    """Functions that earlier runs compiled."""


class Backend(ABC):
    """Faster implementations for some devices. Every method may decline; the defaults do."""

    name: ClassVar[str]
    api_version: ClassVar[int] = 1
    """The `SPECDEC_API` this class was written for; see `Proposer.api_version`."""
    order: ClassVar[int] = 50
    """Backends with a lower number are asked first."""

    def answers(self, device: torch.device) -> dict[str, object]:
        """Return what it offers on a device, each by a name for people, or `Declined`; for `specdec doctor`."""
        return {
            "verification": self.verifier("strict", device),
            "rows of logits": self.row_operations(device),
        }

    def compiled(self, device: torch.device) -> Compiled | None:
        """Return what is compiled for a device; None if the backend compiles nothing that it keeps."""
        return None

    def verifier(self, sampler: str, device: torch.device) -> Verify | Declined:
        """Return a faster `verify` of a sampler, by its name: of `strict`, or of another `TorchSampler` without options."""
        return Declined("it has no verification")

    def row_operations(self, device: torch.device) -> RowOperations | Declined:
        """Return faster operations on rows of logits on a device."""
        return Declined("it has no operations on rows")
