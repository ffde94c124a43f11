"""Cascades keep the promises of proposers."""

from __future__ import annotations

from specdec_testing import ProposerConformance

COPIES = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1, "prompt_lookup_max": 3}


class TestCopies(ProposerConformance):
    method = "cascade"
    config = {"proposers": [{"method": "suffix"}, COPIES]}


class TestTreeBesideChain(ProposerConformance):
    method = "cascade"
    config = {"proposers": [{"method": "suffix", "use_tree_spec": True}, COPIES]}


class TestHead(ProposerConformance):
    method = "cascade"
    config = {"proposers": [COPIES, {"method": "eagle3", "model": "zoo", "num_speculative_tokens": 3}]}
