"""Registers the samplers of this package."""

from __future__ import annotations

from specdec import Sampler, hookimpl


@hookimpl
def specdec_register_samplers() -> list[type[Sampler]]:
    """Return the samplers."""
    from specdec_samplers import BlockSampler, ProbabilisticSampler, SyntheticSampler, TypicalSampler

    return [BlockSampler, ProbabilisticSampler, SyntheticSampler, TypicalSampler]
