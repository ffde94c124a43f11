"""The `typical` sampler: accepts plausible tokens. Lossy."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field

from specdec.interfaces.sampler import SamplerConfig
from specdec.samplers.padded_drafts import PaddedDrafts
from specdec.samplers.scheme import Rule, Scheme
from specdec.samplers.verifier import Verifier


class TypicalConfig(SamplerConfig):
    """Thresholds for a plausible token."""

    posterior_threshold: float = Field(
        0.09,
        gt=0.0,
        le=1.0,
        description="Lossy: a token with a higher probability is always accepted (epsilon).",
    )
    posterior_alpha: float = Field(
        0.3,
        gt=0.0,
        le=1.0,
        description="Lossy: factor of exp(-entropy), the bound where that is lower (delta).",
    )


class TypicalSampler(Verifier):
    """Accepts a drafted token where p > min(epsilon, delta * exp(-entropy of p)), and draws from p after the longest path.

    The output does not follow the target's distribution. (Cai et al., arXiv 2401.10774; temperature 0 is greedy decoding.)
    """

    name: ClassVar[str] = "typical"
    is_lossless: ClassVar[bool] = False
    Config: ClassVar[type[SamplerConfig]] = TypicalConfig

    def scheme(self, padded: PaddedDrafts) -> Scheme:
        """Return the scheme: thresholds are 0 or 1."""
        assert isinstance(self.config, TypicalConfig)
        # The logarithm of 0 is never taken; what replaces it is multiplied by 0.
        logs = padded.probs.clamp_min(torch.finfo(padded.probs.dtype).tiny).log_()
        entropies = -logs.mul_(padded.probs).sum(-1)
        floors = (self.config.posterior_alpha * torch.exp(-entropies)).clamp_max(
            self.config.posterior_threshold
        )
        thresholds = (padded.target_of_nodes() > floors[padded.parent_rows]).to(padded.probs)
        return Scheme(thresholds, Rule.DEEPEST, padded.target_after)
