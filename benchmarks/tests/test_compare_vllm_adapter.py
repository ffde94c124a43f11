"""Peers of specdec's proposers in vLLM, and the settings that install them."""

from __future__ import annotations

import compare_vllm_adapter
import pytest
from common.options import make_parser, read_options
from common.speculation import speculations


def test_every_method_runs_in_both_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare_vllm_adapter, "read_prompts", lambda _, count: [[1]] * count)
    options = read_options(make_parser("", num_prompts=2, k=[5]).parse_args(["--dtypes", "float32"]))
    found = list(speculations(options, ["ngram", "suffix"], ["recent"]))
    first, second = compare_vllm_adapter.make_cases(options, [1, 8], "eager", found, False)
    assert (first.batch_size, second.batch_size) == (1, 8)
    assert [(ours.name, peer.name) for ours, peer in first.pairs] == [
        ("vllm ngram k=5 recent eager specdec", "vllm ngram k=5 recent eager"),
        ("vllm ngram k=5 recent eager specdec", "vllm none eager"),
        ("vllm ngram k=5 recent adaptive eager specdec", "vllm ngram k=5 recent eager"),
        ("vllm ngram k=5 recent adaptive eager specdec", "vllm none eager"),
        ("vllm suffix k=5 eager specdec", "vllm suffix k=5 eager"),
        ("vllm suffix k=5 eager specdec", "vllm none eager"),
        ("vllm suffix k=5 adaptive eager specdec", "vllm suffix k=5 eager"),
        ("vllm suffix k=5 adaptive eager specdec", "vllm none eager"),
    ]
    ours, peer = first.pairs[4]
    assert ours.settings == {
        "arguments": {
            "additional_config": {"specdec": {"method": "suffix", "num_speculative_tokens": 5}},
            "enforce_eager": True,
            "worker_cls": "specdec_vllm.CPUWorker",
        },
        "speculative_config": {
            "method": "custom_class", "model": "specdec_vllm.Proposer", "num_speculative_tokens": 5,
        },
    }  # fmt: skip
    assert peer.settings["speculative_config"] == {"method": "suffix", "num_speculative_tokens": 5}
    adaptive = first.pairs[6][0].settings["arguments"]
    assert adaptive["additional_config"]["specdec"]["adaptive"] is True
