"""The suite for samplers."""

from __future__ import annotations

from specdec.testing.samplers.laws import LawTests
from specdec.testing.samplers.verdicts import VerdictTests

__all__ = ["SamplerConformance"]


# pytest runs the tests of the last base first.
class SamplerConformance(LawTests, VerdictTests):
    """The promises of a sampler, one test each.

    A subclass gives `sampler` (a name, the class, or `./file.py:Class`) and, where needed, `config` (the sampler's own keys).
    That a sampler is lossless is shown by enumeration, for every kind of draft that its capabilities name.
    """
