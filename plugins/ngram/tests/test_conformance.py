"""Both methods of this package keep the promises of proposers."""

from __future__ import annotations

from specdec_testing import ProposerConformance


class TestNgram(ProposerConformance):
    method = "ngram"
    config = {"num_speculative_tokens": 4, "prompt_lookup_min": 1, "prompt_lookup_max": 3}


class TestNgramFirst(ProposerConformance):
    method = "ngram"
    config = {"num_speculative_tokens": 3, "prompt_lookup_min": 2, "prompt_lookup_max": 2, "match": "first"}
    model = "tiny"


class TestNgramGpu(ProposerConformance):
    method = "ngram_gpu"
    config = {"num_speculative_tokens": 4, "prompt_lookup_min": 1, "prompt_lookup_max": 3}
    model = "tiny"
