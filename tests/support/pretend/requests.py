"""What is served on the pretend device: methods, sampling parameters and a text."""

from __future__ import annotations

from typing import Any

from specdec import SamplingParams

METHODS: dict[str, dict[str, Any] | None] = {
    "plain": None,
    "ngram": {"method": "ngram", "num_speculative_tokens": 3},
    "suffix": {"method": "suffix", "num_speculative_tokens": 3},
    "draft_model": {"method": "draft_model", "model": "zoo", "num_speculative_tokens": 3},
    "eagle3": {"method": "eagle3", "model": "zoo", "num_speculative_tokens": 3},
    "eagle3-tree": {
        "method": "eagle3", "model": "zoo", "num_speculative_tokens": 8, "tree_top_k": 2, "tree_depth": 3,
    },
    "mtp": {"method": "mtp", "model": "zoo", "num_speculative_tokens": 3},
    "self": {"method": "self", "num_speculative_tokens": 3, "skip_layers": [1, 3, 4, 6, 7, 8, 9, 10, 11, 13]},
}  # fmt: skip
PARAMS: dict[str, list[dict[str, Any]]] = {
    "greedy": [{"temperature": 0.0}],
    "sampled": [{"temperature": 0.8, "top_p": 0.9}],
    "mixed": [
        {"temperature": 0.8, "top_p": 0.9, "logprobs": 2, "repetition_penalty": 1.2},
        {"temperature": 1.1, "top_k": 40, "frequency_penalty": 0.4, "logprobs": 0},
        {"temperature": 0.0, "presence_penalty": 0.5, "logprobs": 3},
        {"temperature": 0.6, "min_p": 0.05},
    ],
}
"""Sampling parameters; a batch goes through them in turn."""
TEXT = "def name(self):\n    return self._name\n\ndef value(self):\n    return self._value\n\ndef "


def params(name: str, size: int = 8, max_tokens: int = 18) -> list[SamplingParams]:
    """Return the parameters of some requests."""
    kinds = PARAMS[name]
    return [
        SamplingParams(seed=row, max_tokens=max_tokens, ignore_eos=True, **kinds[row % len(kinds)])
        for row in range(size)
    ]


def text_ids() -> list[int]:
    """Return the ids of `TEXT`."""
    from transformers import AutoTokenizer

    import specdec_zoo

    ids: list[int] = AutoTokenizer.from_pretrained(specdec_zoo.path("target"))(TEXT)["input_ids"]
    return ids
