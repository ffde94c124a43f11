"""Registers core's samplers through the same door as everybody's."""

from __future__ import annotations

from specdec.hooks import hookimpl
from specdec.interfaces.sampler import Sampler


@hookimpl
def specdec_register_samplers() -> list[type[Sampler]]:
    """Return core's samplers."""
    from specdec.samplers.strict import StrictSampler

    return [StrictSampler]
