"""Which methods run on which model, and the requests of each case."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

PLAIN = "plain"


def _on_the_zoo() -> dict[str, dict[str, Any]]:
    return {
        "ngram": {"method": "ngram", "num_speculative_tokens": 4},
        "ngram_gpu": {"method": "ngram_gpu", "num_speculative_tokens": 4},
        "suffix": {"method": "suffix"},
        "recycling": {"method": "recycling", "num_speculative_tokens": 6},
        "self": {"method": "self", "num_speculative_tokens": 4},
        "draft_model": {"method": "draft_model", "model": "zoo", "num_speculative_tokens": 4},
        "eagle": {"method": "eagle", "model": "zoo", "num_speculative_tokens": 4},
        "eagle3": {"method": "eagle3", "model": "zoo", "num_speculative_tokens": 4},
        "eagle3_tree": {"method": "eagle3", "model": "zoo", "num_speculative_tokens": 8, "tree_top_k": 3},
        "eagle3_block": {
            "method": "eagle3", "model": "zoo", "num_speculative_tokens": 4, "rejection_sample_method": "block",
        },
        "eagle3_probabilistic": {
            "method": "eagle3", "model": "zoo", "num_speculative_tokens": 4,
            "rejection_sample_method": "probabilistic",
        },
        "mtp": {"method": "mtp", "model": "zoo", "num_speculative_tokens": 3},
    }  # fmt: skip


def _on_smollm2() -> dict[str, dict[str, Any]]:
    names = ("ngram", "ngram_gpu", "suffix", "recycling", "self", "eagle3", "eagle3_tree", "eagle3_block")
    return {name: _on_the_zoo()[name] for name in names}


CONFIGURATIONS = {"zoo": _on_the_zoo(), "smollm2": _on_smollm2()}
"""`speculative_config` by model and name."""


@dataclass(frozen=True)
class Case:
    """Requests that run together.

    Args:
        params: keys of `SamplingParams`.
        batch_size: requests at a time.
    """

    params: dict[str, Any] = field(default_factory=dict)
    batch_size: int = 8


_DRAWN = {"temperature": 0.8, "top_p": 0.9, "seed": 7}
CASES = {
    "greedy": Case({"temperature": 0.0}),
    "greedy alone": Case({"temperature": 0.0}, batch_size=1),
    "sampled": Case(_DRAWN),
    "sampled alone": Case(_DRAWN, batch_size=1),
    "penalties, logprobs": Case(
        {**_DRAWN, "repetition_penalty": 1.1, "presence_penalty": 0.2, "logprobs": 3}
    ),
}
"""Requests by name."""
