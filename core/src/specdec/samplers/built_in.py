"""Base class of core's own samplers: a backend's verification where there is one, else torch."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from specdec.interfaces.capability import Capability
from specdec.interfaces.draft import CheckedDraft
from specdec.interfaces.proposer import SPECDEC_API
from specdec.interfaces.sampler import Sampler, Verdict, VerifyBatch
from specdec.interfaces.scorer import Scores
from specdec.samplers.choice import fast_verify


class BuiltIn(Sampler):
    """A sampler of core."""

    api_version: ClassVar[int] = SPECDEC_API
    capabilities: ClassVar[frozenset[Capability]] = frozenset({Capability.TREE})

    def verify(self, scores: Scores, draft: CheckedDraft, batch: VerifyBatch) -> Verdict:
        """Decide where every draft's accepted path stops, and draw the token after it."""
        verdict = None
        if type(self).__module__.startswith(__package__ or ""):  # else a subclass may decide otherwise
            fast = fast_verify(self.name, scores.logits.device, self.verify_with_torch)
            verdict = None if fast is None else fast(scores, draft, batch)
        return self.verify_with_torch(scores, draft, batch) if verdict is None else verdict

    @abstractmethod
    def verify_with_torch(self, scores: Scores, draft: CheckedDraft, batch: VerifyBatch) -> Verdict:
        """Do the same with torch alone; backends are compared with it."""
