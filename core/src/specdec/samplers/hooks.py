"""Registers the samplers of core with the hook that plugins use."""

from __future__ import annotations

from specdec.hooks import hookimpl
from specdec.interfaces.sampler import Sampler


@hookimpl
def specdec_register_samplers() -> list[type[Sampler]]:
    """Return the samplers."""
    from specdec.samplers.block import BlockSampler
    from specdec.samplers.probabilistic import ProbabilisticSampler
    from specdec.samplers.strict import StrictSampler

    return [BlockSampler, ProbabilisticSampler, StrictSampler]
