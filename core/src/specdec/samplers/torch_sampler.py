"""Base class of samplers that verify with torch, where no backend does it faster."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from functools import cache
from typing import ClassVar

import torch

from specdec import registry
from specdec.backends.verifiers import choose_verifier
from specdec.interfaces.async_verdict import AsyncVerdict, AsyncVerify
from specdec.interfaces.backend import Backend, ReadsTransfer, Verify
from specdec.interfaces.capability import Capability
from specdec.interfaces.proposer import SPECDEC_API
from specdec.interfaces.sampler import Sampler, SamplerConfig, Verdict, VerifyBatch
from specdec.interfaces.scorer import Scores
from specdec.interfaces.sent import Transfer
from specdec.samplers.paths import valid_rows


class TorchSampler(Sampler):
    """A sampler for which a backend may have a faster verification, by its name (`Backend.verifier`).

    Backends are asked where the class has a name of its own, since a subclass may decide otherwise, and no options,
    which they are not told.
    """

    api_version: ClassVar[int] = SPECDEC_API
    capabilities: ClassVar[frozenset[Capability]] = frozenset({Capability.TREE})

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.finds_invalid_rows = cls.verify is TorchSampler.verify

    def __init__(self, config: SamplerConfig) -> None:
        super().__init__(config)
        self._fast: dict[torch.device, Verify | None] = {}
        """The backends' verification on a device, once that was asked for."""

    def transfer(self, batch: VerifyBatch, device: torch.device) -> Transfer | None:
        """Return the arrays that the backend's verification reads on the device; None if it reads none."""
        fast: object = self.fast_on(device)
        if not isinstance(fast, ReadsTransfer):
            return None
        arrays = fast.arrays(batch)
        return Transfer(arrays, fast.growing) if arrays else None

    def cuts(self, device: torch.device) -> bool:
        """Return whether the backend's verification applies top-k and top-p itself."""
        return self.finds_invalid_rows and getattr(self.fast_on(device), "cuts", False)

    def verify(self, scores: Scores, batch: VerifyBatch) -> Verdict:
        """Decide where every draft's accepted path stops, and draw the token after it."""
        device = scores.logits.device
        if batch.device_nodes is not None and device.type == "cpu":
            batch = batch.read()  # which costs nothing here
        fast = self._fast[device] if device in self._fast else self.fast_on(device)
        if scores.is_valid is None and not getattr(fast, "finds_invalid_rows", False):
            scores = valid_rows(scores)
        verdict = None if fast is None else fast(scores, batch)
        if verdict is None:
            scores = valid_rows(scores) if scores.is_valid is None else scores
            verdict = self.verify_with_torch(scores, batch.read())
        if verdict.is_valid is None and scores.is_valid is not None:
            verdict = replace(verdict, is_valid=scores.is_valid.tolist())
        return verdict

    def begin(self, scores: Scores, batch: VerifyBatch) -> AsyncVerdict | None:
        """Begin to verify as the backends do, if they can and the class leaves `verify` to them."""
        fast: object = self.fast_on(scores.logits.device) if self.finds_invalid_rows else None
        return fast.begin(scores, batch) if isinstance(fast, AsyncVerify) else None

    def fast_on(self, device: torch.device) -> Verify | None:
        """Return the backends' verification on a device; None without, and then torch verifies."""
        if device not in self._fast:
            self._fast[device] = fast_verify(type(self), device, registry.backends())
        return self._fast[device]

    @abstractmethod
    def verify_with_torch(self, scores: Scores, batch: VerifyBatch) -> Verdict:
        """Do the same with torch alone; backends are compared with it."""


@cache
def fast_verify(
    sampler: type[TorchSampler], device: torch.device, backends: tuple[Backend, ...]
) -> Verify | None:
    """Return a backend's verification that decides as a sampler does with torch, or None; chosen once.

    Args:
        sampler: the class.
        device: of the logits.
        backends: those that are asked.
    """
    if "name" not in vars(sampler) or sampler.Config.model_fields:
        return None
    return choose_verifier(sampler.name, device, sampler(sampler.Config()).verify_with_torch)
