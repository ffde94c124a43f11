"""Counting models: their output, and the share of it that a draft predicts."""

from __future__ import annotations

import pytest
import torch
from device.counting import counting_model
from device.shape import TINY
from transformers import PreTrainedModel

CPU = torch.device("cpu")


def next_ids(model: PreTrainedModel, ids: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = model(input_ids=ids[None]).logits[0].argmax(-1)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_after_a_token_comes_the_next_one(dtype: torch.dtype) -> None:
    ids = torch.randint(TINY.vocab_size, (64,), generator=torch.Generator().manual_seed(1))
    assert torch.equal(next_ids(counting_model(TINY, CPU, dtype), ids), (ids + 1) % TINY.vocab_size)


def test_layers_are_not_idle() -> None:
    model = counting_model(TINY, CPU, torch.float32)
    ids = torch.tensor([[3, 5, 7]])
    with torch.inference_mode():
        whole = model.get_submodule("model")(ids).last_hidden_state
        embedded = model.get_input_embeddings()(ids)
    cosine = torch.cosine_similarity(whole, embedded, -1)
    assert bool((cosine < 0.995).all())
    assert bool((cosine > 0.8).all())


def test_the_same_seed_gives_the_same_weights() -> None:
    made = [
        counting_model(TINY, CPU, torch.float32, seed=seed).get_parameter("lm_head.weight")
        for seed in (0, 0, 1)
    ]
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])
