"""Every way of drafting keeps the promises of proposers."""

from __future__ import annotations

import pytest

from specdec_testing import ProposerConformance


@pytest.mark.few_promises
class TestGreedyChain(ProposerConformance):
    method = "self"
    model = "tiny"
    config = {"num_speculative_tokens": 3, "draft_sample_method": "greedy"}


@pytest.mark.few_promises
class TestCoupledChainOfFourBits(ProposerConformance):
    method = "self"
    model = "tiny"
    config = {"num_speculative_tokens": 4, "weights": "int4", "head_weights": "int8"}


@pytest.mark.few_promises
class TestDrawnChain(ProposerConformance):
    method = "self"
    model = "tiny"
    config = {"num_speculative_tokens": 3, "rejection_sample_method": "probabilistic"}


class TestDrawnTree(ProposerConformance):
    method = "self"
    model = "tiny"
    config = {"num_speculative_tokens": 6, "tree_top_k": 2, "rejection_sample_method": "block"}


class TestDrawnChainOfSomeIds(ProposerConformance):
    method = "self"
    model = "tiny"
    config = {"num_speculative_tokens": 3, "draft_vocab_size": 64, "rejection_sample_method": "probabilistic"}


@pytest.mark.full
class TestCoupledChainOfSomeIdsAndOwnOnes(ProposerConformance):
    method = "self"
    model = "zoo"
    config = {"num_speculative_tokens": 3, "draft_vocab_size": 256}
