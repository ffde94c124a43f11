"""The suite for samplers."""

from __future__ import annotations

from specdec_testing.samplers.distributions import DistributionTests
from specdec_testing.samplers.verdicts import VerdictTests

__all__ = ["SamplerConformance"]


# pytest runs the tests of the last base first.
class SamplerConformance(DistributionTests, VerdictTests):
    """The promises of a sampler, one test each.

    A subclass sets `sampler` (a name, the class, or `./file.py:Class`) and, if needed, `config` (the sampler's own keys).
    Losslessness is tested against exact enumeration, for every kind of draft that the sampler's capabilities cover.
    """
