"""Registers the samplers and the part of specdec of this package."""

from __future__ import annotations

from specdec import Sampler, hookimpl
from specdec.interfaces import Part


@hookimpl
def specdec_register_samplers() -> list[type[Sampler]]:
    """Return the samplers."""
    from specdec_samplers import BlockSampler, ProbabilisticSampler, SyntheticSampler, TypicalSampler

    return [BlockSampler, ProbabilisticSampler, SyntheticSampler, TypicalSampler]


@hookimpl
def specdec_register_parts() -> type[Part]:
    """Return the part `logits_rules`."""
    from specdec_samplers.rules import ParameterRules

    return ParameterRules
