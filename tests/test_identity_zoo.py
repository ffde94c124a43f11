"""Greedy identity with `transformers` on real text: the zoo's target, without speculation and with prompt lookup."""

from __future__ import annotations

import pytest
import torch
from speccheck.zoo_run import RESULTS, ZooRun, run_all, write
from transformers import AutoModelForCausalLM, PreTrainedModel

import specdec_zoo

NUM_PROMPTS, MAX_TOKENS = 12, 48
NGRAM = {"method": "ngram", "prompt_lookup_max": 4, "prompt_lookup_min": 2}
SMALL = {
    "none, batch 1": (None, 1),
    "none, batch 7": (None, 7),
    "ngram k=1, batch 7": (NGRAM | {"num_speculative_tokens": 1}, 7),
    "ngram k=4, batch 32": (NGRAM | {"num_speculative_tokens": 4}, 32),
    "ngram k=8, batch 1": (NGRAM | {"num_speculative_tokens": 8}, 1),
}


def has_zoo() -> bool:
    return "target" in specdec_zoo.names()


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not has_zoo(), reason="the zoo has not been built in this checkout: make zoo"),
]


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    made: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        specdec_zoo.path("target"), dtype=torch.float32
    )
    return made.eval()


@pytest.fixture(scope="module")
def zoo(model) -> ZooRun:
    return ZooRun.prepare(model, NUM_PROMPTS, MAX_TOKENS)


@pytest.mark.parametrize("case", SMALL)
def test_greedy_text_is_that_of_transformers(zoo, case) -> None:
    speculation, batch_size = SMALL[case]
    row = zoo.run(case, speculation, batch_size)
    assert row["errors"] == []
    assert row["ties"] == []
    assert row["identical_prompts"] == NUM_PROMPTS
    assert row["output_tokens"] == NUM_PROMPTS * MAX_TOKENS
    if speculation is not None:
        assert row["num_accepted_tokens"] > 0


def test_greedy_text_without_fused_layers(zoo) -> None:
    row = zoo.run("eager", NGRAM | {"num_speculative_tokens": 4}, 7, enforce_eager=True, num_prompts=8)
    assert row["errors"] == row["ties"] == []


@pytest.mark.full
@pytest.mark.timeout(7200)
def test_all_methods_sizes_and_batches_at_length(model) -> None:
    result = run_all(model, num_prompts=200, max_tokens=128)
    write(result, RESULTS / "identity.json")
    assert all(row["errors"] == [] for row in result["rows"])
    assert all(row["ties"] == [] for row in result["rows"])
