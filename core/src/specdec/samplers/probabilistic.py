"""The `probabilistic` sampler: rejection sampling."""

from __future__ import annotations

from typing import ClassVar

from specdec.interfaces.capability import Capability
from specdec.samplers.padded_drafts import PaddedDrafts
from specdec.samplers.rejection import rejection_scheme
from specdec.samplers.scheme import Scheme
from specdec.samplers.verifier import Verifier


class ProbabilisticSampler(Verifier):
    """Accepts a drawn token with min(1, p / q) and draws from the residual after the first rejection.

    Lossless if q is the distribution the token was drawn from. A draft without q is verified as point masses,
    which is always lossless.
    """

    name: ClassVar[str] = "probabilistic"
    aliases: ClassVar[tuple[str, ...]] = ("standard",)
    is_lossless: ClassVar[bool] = True
    capabilities: ClassVar[frozenset[Capability]] = frozenset({Capability.TREE, Capability.DRAFT_PROBS})

    def scheme(self, padded: PaddedDrafts) -> Scheme:
        """Return the scheme of rejection sampling, recursive over siblings."""
        return rejection_scheme(padded)
