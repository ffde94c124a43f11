"""The method of this package keeps the promises of proposers."""

from __future__ import annotations

from specdec_testing import ProposerConformance


class TestRecycling(ProposerConformance):
    method = "recycling"
    config = {"num_speculative_tokens": 6}


class TestRecyclingTiny(ProposerConformance):
    method = "recycling"
    config = {"num_speculative_tokens": 3, "num_successors": 2, "min_probability": 0.0}
    model = "tiny"
