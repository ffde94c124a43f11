"""The `block` sampler: block verification."""

from __future__ import annotations

from typing import ClassVar

from specdec.interfaces.capability import Capability
from specdec.samplers.block_scheme import block_scheme
from specdec.samplers.scheme import Scheme
from specdec.samplers.trial import Trial
from specdec.samplers.verifier import Verifier


class BlockSampler(Verifier):
    """Decides drafted paths as a whole: in expectation it never accepts fewer tokens than `probabilistic`.

    Lossless under the same condition; drafts without q are verified exactly as `probabilistic` does.
    """

    name: ClassVar[str] = "block"
    is_lossless: ClassVar[bool] = True
    capabilities: ClassVar[frozenset[Capability]] = frozenset({Capability.TREE, Capability.DRAFT_PROBS})

    def scheme(self, trial: Trial) -> Scheme:
        """Return the scheme of block verification."""
        return block_scheme(trial)
