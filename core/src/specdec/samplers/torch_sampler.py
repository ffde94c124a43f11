"""Base class of samplers that verify with torch, where no backend does it faster."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch

from specdec.interfaces.backend import ReadsAhead
from specdec.interfaces.capability import Capability
from specdec.interfaces.draft import CheckedDraft
from specdec.interfaces.proposer import SPECDEC_API
from specdec.interfaces.sampler import Sampler, Verdict, VerifyBatch
from specdec.interfaces.scorer import Scores
from specdec.interfaces.sent import Along
from specdec.samplers.choice import fast_verify


class TorchSampler(Sampler):
    """A sampler for which a backend may have a faster verification, by its name (`Backend.verifier`).

    Backends are asked where the class has a name of its own, since a subclass may decide otherwise, and no options,
    which they are not told.
    """

    api_version: ClassVar[int] = SPECDEC_API
    capabilities: ClassVar[frozenset[Capability]] = frozenset({Capability.TREE})

    def ahead(self, draft: CheckedDraft, batch: VerifyBatch, device: torch.device) -> Along | None:
        """See `Sampler.ahead`."""
        fast: object = fast_verify(self, self.verify_with_torch, device)
        arrays = fast.arrays(draft, batch) if isinstance(fast, ReadsAhead) else ()
        return Along(arrays) if arrays else None

    def verify(self, scores: Scores, draft: CheckedDraft, batch: VerifyBatch) -> Verdict:
        """Decide where every draft's accepted path stops, and draw the token after it."""
        fast = fast_verify(self, self.verify_with_torch, scores.logits.device)
        verdict = None if fast is None else fast(scores, draft, batch)
        return self.verify_with_torch(scores, draft, batch) if verdict is None else verdict

    @abstractmethod
    def verify_with_torch(self, scores: Scores, draft: CheckedDraft, batch: VerifyBatch) -> Verdict:
        """Do the same with torch alone; backends are compared with it."""
