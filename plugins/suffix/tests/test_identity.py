"""The text is that of plain decoding: greedy and at equal seeds, for every k, batch size, shape and sampler."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

import pytest

import specdec_zoo
from specdec import LLM, SamplingParams
from specdec.engine_options import EngineOptions
from specdec_runtime.loading.target import LoadedTarget, load_target

MAX_TOKENS = 40
GRID = list(product((1, 5, 8, 16), (1, 7, 32), (False, True)))
SAMPLE = [
    pytest.param(*size, temperature, marks=() if is_default else pytest.mark.slow)
    for size, default in (((5, 7, False), 0.8), ((16, 32, True), 0.8), ((8, 1, False), 0.0))
    for temperature in (0.0, 0.8)
    for is_default in [temperature == default]
]
"""Each size at one temperature, the other one is slow."""
SAMPLERS = ("strict", "probabilistic", "block")


@cache
def target() -> LoadedTarget:
    return load_target(EngineOptions(model="zoo", dtype="float32"))


@cache
def prompts(batch_size: int) -> tuple[tuple[int, ...], ...]:
    """Return a batch and a half, so that requests join and leave, and one prompt twice."""
    tokenizer = target().tokenizer
    texts = [each["prompt"] for each in specdec_zoo.prompts(batch_size + 1)]
    ids = [tuple(tokenizer(text)["input_ids"][: (9, 33, 64, 120)[row % 4]]) for row, text in enumerate(texts)]
    return (*ids, ids[0])


def generate(
    batch_size: int, temperature: float, speculation: dict[str, Any] | None
) -> tuple[list[list[int]], int]:
    """Return the tokens of two turns over the prompts, and how many drafted ones were accepted in the second."""
    llm = LLM(
        target(),
        max_num_seqs=batch_size,
        max_model_len=512,
        strict_drafts=True,
        speculative_config=speculation,
    )
    asked = [{"prompt_token_ids": list(ids)} for ids in prompts(batch_size)]
    params = [
        SamplingParams(temperature=temperature, seed=row, max_tokens=MAX_TOKENS, ignore_eos=True)
        for row in range(len(asked))
    ]
    turns = [llm.generate(asked, params) for _ in range(2)]
    tokens = [output.outputs[0].token_ids for turn in turns for output in turn]
    return tokens, sum(output.metrics.num_accepted_tokens for output in turns[1])


@cache
def plain(batch_size: int, temperature: float) -> list[list[int]]:
    return generate(batch_size, temperature, None)[0]


def check(k: int, batch_size: int, is_tree: bool, temperature: float, sampler: str = "strict") -> None:
    config = {
        "method": "suffix",
        "num_speculative_tokens": k,
        "use_tree_spec": is_tree,
        "rejection_sample_method": sampler,
        "on_proposer_error": "raise",
    }
    tokens, num_accepted = generate(batch_size, temperature, config)
    assert num_accepted
    if sampler == "strict" or temperature == 0.0:
        assert tokens == plain(batch_size, temperature)
    else:  # the same distribution by other draws, which core's own tests compare
        assert all(len(row) == MAX_TOKENS for row in tokens)


@pytest.mark.parametrize(("k", "batch_size", "is_tree", "temperature"), SAMPLE)
@pytest.mark.sampled(1, slow=1)
def test_sample(k: int, batch_size: int, is_tree: bool, temperature: float) -> None:
    check(k, batch_size, is_tree, temperature)


@pytest.mark.parametrize(
    ("sampler", "is_tree"),
    [
        ("block", False),
        ("probabilistic", True),
        pytest.param("block", True, marks=pytest.mark.slow),
        pytest.param("probabilistic", False, marks=pytest.mark.slow),
    ],
)
@pytest.mark.sampled(1, slow=1)
def test_samplers(sampler: str, is_tree: bool) -> None:
    check(5, 7, is_tree, 0.0, sampler)
    check(5, 7, is_tree, 0.8, sampler)


@pytest.mark.full
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize(("k", "batch_size", "is_tree"), GRID)
def test_grid(k: int, batch_size: int, is_tree: bool, temperature: float, sampler: str) -> None:
    check(k, batch_size, is_tree, temperature, sampler)
