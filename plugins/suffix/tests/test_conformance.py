"""Chains and trees keep the promises of proposers."""

from __future__ import annotations

import pytest

from specdec_testing import ProposerConformance

pytestmark = pytest.mark.usefixtures("trees_of_engines")


class TestSuffix(ProposerConformance):
    method = "suffix"


class TestSuffixTree(ProposerConformance):
    method = "suffix"
    config = {"num_speculative_tokens": 6, "use_tree_spec": True, "suffix_decoding_max_spec_factor": 2.0}
    model = "tiny"


class TestSuffixWithoutMemory(ProposerConformance):
    method = "suffix"
    config = {"suffix_decoding_max_cached_requests": 0, "suffix_decoding_max_tree_depth": 6}
    model = "tiny"


class TestSuffixWithLittleMemory(ProposerConformance):
    method = "suffix"
    config = {"suffix_decoding_max_cached_requests": 1, "suffix_decoding_min_token_prob": 0.0}
    model = "tiny"
