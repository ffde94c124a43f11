"""Registers the sampler of core with the hook that plugins use."""

from __future__ import annotations

from specdec.hooks import hookimpl
from specdec.interfaces.sampler import Sampler


@hookimpl
def specdec_register_samplers() -> type[Sampler]:
    """Return the sampler `strict`."""
    from specdec.samplers.strict import StrictSampler

    return StrictSampler
