"""Greedy identity with `generate` over the zoo's held-out prompts, padded, in batches."""

from __future__ import annotations

import pytest
import torch

import specdec_transformers
import specdec_zoo

NUM_PROMPTS, BATCH_SIZE, MAX_TOKENS = 200, 20, 48
METHODS = [
    {"method": "ngram", "num_speculative_tokens": 4},
    {"method": "draft_model", "model": "zoo", "num_speculative_tokens": 3},
]


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_200_prompts(zoo_model, tokenizer) -> None:
    texts = [prompt["prompt"] for prompt in specdec_zoo.prompts(NUM_PROMPTS)]
    assert len(texts) == NUM_PROMPTS
    differing: dict[str, list[int]] = {str(config["method"]): [] for config in METHODS}
    batches = []
    for start in range(0, NUM_PROMPTS, BATCH_SIZE):
        inputs = tokenizer(
            texts[start : start + BATCH_SIZE],
            return_tensors="pt",
            padding=True,
            padding_side="left",
            truncation=True,
            max_length=64,
        )
        batches.append((inputs, zoo_model.generate(**inputs, max_new_tokens=MAX_TOKENS)))
    for config in METHODS:
        for number, (inputs, expected) in enumerate(batches):
            found = zoo_model.generate(
                **inputs,
                max_new_tokens=MAX_TOKENS,
                custom_generate=specdec_transformers.generate,
                speculative_config=config,
            )
            same = (found == expected).all(-1) if found.shape == expected.shape else torch.zeros(BATCH_SIZE)
            differing[str(config["method"])] += [
                number * BATCH_SIZE + row for row, is_same in enumerate(same.tolist()) if not is_same
            ]
    assert differing == {str(config["method"]): [] for config in METHODS}
