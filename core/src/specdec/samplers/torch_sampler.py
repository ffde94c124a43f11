"""Base class of samplers that verify with torch, where no backend does it faster."""

from __future__ import annotations

from abc import abstractmethod
from functools import cache
from typing import ClassVar

import torch

from specdec import registry
from specdec.interfaces.backend import Backend, Declined, ReadsAhead, Verify
from specdec.interfaces.capability import Capability
from specdec.interfaces.draft import CheckedDraft
from specdec.interfaces.proposer import SPECDEC_API
from specdec.interfaces.sampler import Sampler, Verdict, VerifyBatch
from specdec.interfaces.scorer import Scores
from specdec.interfaces.sent import Along
from specdec.registry.offers import first_offer
from specdec.samplers.probe import problems


class TorchSampler(Sampler):
    """A sampler for which a backend may have a faster verification, by its name (`Backend.verifier`).

    Backends are asked where the class has a name of its own, since a subclass may decide otherwise, and no options,
    which they are not told.
    """

    api_version: ClassVar[int] = SPECDEC_API
    capabilities: ClassVar[frozenset[Capability]] = frozenset({Capability.TREE})

    def ahead(self, draft: CheckedDraft, batch: VerifyBatch, device: torch.device) -> Along | None:
        """See `Sampler.ahead`."""
        fast: object = fast_verify(type(self), device, registry.backends())
        arrays = fast.arrays(draft, batch) if isinstance(fast, ReadsAhead) else ()
        return Along(arrays) if arrays else None

    def verify(self, scores: Scores, draft: CheckedDraft, batch: VerifyBatch) -> Verdict:
        """Decide where every draft's accepted path stops, and draw the token after it."""
        fast = fast_verify(type(self), scores.logits.device, registry.backends())
        verdict = None if fast is None else fast(scores, draft, batch)
        return self.verify_with_torch(scores, draft, batch) if verdict is None else verdict

    @abstractmethod
    def verify_with_torch(self, scores: Scores, draft: CheckedDraft, batch: VerifyBatch) -> Verdict:
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
    own = sampler(sampler.Config()).verify_with_torch

    def problem_of(found: Verify) -> str | None:
        agrees = all((got := found(*each)) is None or got == own(*each) for each in problems(device))
        return None if agrees else "it decides otherwise"

    what = f"the {sampler.name!r} verification"
    answer = first_offer(what, lambda backend: backend.verifier(sampler.name, device), problem_of)
    return None if isinstance(answer, Declined) else answer
