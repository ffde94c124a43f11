"""`deterministic=True` on the zoo in bfloat16: the same text with and without speculation, alone and in a batch."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import AutoTokenizer

import specdec_zoo
from specdec import LLM, SamplingParams

TOKENIZER = AutoTokenizer.from_pretrained(specdec_zoo.path("target"))
PROMPTS = [
    TOKENIZER(prompt["prompt"])["input_ids"][: 20 + 5 * i] for i, prompt in enumerate(specdec_zoo.prompts(7))
]
MAX_TOKENS = 20
PARAMS = {
    "greedy": SamplingParams(temperature=0.0, max_tokens=MAX_TOKENS, ignore_eos=True),
    "seeded": SamplingParams(temperature=0.9, top_p=0.95, seed=11, max_tokens=MAX_TOKENS, ignore_eos=True),
}


def texts(
    params: SamplingParams, batch: int, speculation: dict[str, Any] | None = None, **arguments: Any
) -> Any:
    """Token ids of every prompt, `batch` of them at a time, and the engine's metrics."""
    llm = LLM(
        "zoo",
        dtype="bfloat16",
        deterministic=True,
        max_model_len=256,
        max_num_seqs=batch,
        speculative_config=speculation,
        **arguments,
    )
    outputs = llm.generate([{"prompt_token_ids": ids} for ids in PROMPTS], params)
    return [output.outputs[0].token_ids for output in outputs], llm._built.engine.metrics


@pytest.fixture(scope="module")
def plain(request: pytest.FixtureRequest) -> tuple[SamplingParams, list[list[int]]]:
    """Sampling parameters, and what plain decoding gives, one prompt at a time and without cached prefixes."""
    params = PARAMS[request.param]
    return params, texts(params, 1, enable_prefix_caching=False)[0]


def scripted(shape: str, expected: list[list[int]]) -> dict[str, Any]:
    """Drafts that are right more often than not."""
    return {
        "method": "speccheck.proposers.Scripted",
        "num_speculative_tokens": 6,
        "shape": shape,
        "wrong": 0.25,
        "seed": 3,
        "texts": [[*p, *e] for p, e in zip(PROMPTS, expected, strict=True)],
    }


WAYS = [
    ("none", 7), ("ngram", 7), ("ngram", 1), ("draft_model", 7), ("chain", 1), ("chain", 7), ("tree", 7), ("tree", 1),
]  # fmt: skip
"""Methods and batch sizes: at the default level greedy and seeded in turn, the others are slow."""


@pytest.mark.parametrize(
    ("plain", "method", "batch"),
    [
        pytest.param(name, *way, marks=() if place % 2 == turn else pytest.mark.slow)
        for turn, name in enumerate(PARAMS)
        for place, way in enumerate(WAYS)
    ],
    indirect=["plain"],
)
@pytest.mark.sampled(2, slow=2)
def test_the_text_is_that_of_plain_decoding(method: str, batch: int, plain) -> None:
    params, expected = plain
    speculation = {
        "none": None,
        "ngram": {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 3},
        "draft_model": {"method": "draft_model", "model": "zoo", "num_speculative_tokens": 3},
        "chain": scripted("chain", expected),
        "tree": scripted("tree", expected),
    }[method]
    # Prompts in pieces of any size, beside requests that decode.
    got, metrics = texts(params, batch, speculation, max_num_batched_tokens=37)
    assert got == expected
    if speculation is not None:
        assert 0 < metrics.num_accepted_tokens < metrics.num_draft_tokens
        assert metrics.proposer_errors == 0
