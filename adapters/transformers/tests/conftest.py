"""The zoo's target as anyone would load it, and a padded batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedModel

import specdec_transformers
import specdec_zoo
from specdec.config import notices

NGRAM = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1}
VOCAB = 48


@pytest.fixture(autouse=True)
def notices_are_new() -> None:
    notices.reset()


def make_model(seed: int = 3) -> PreTrainedModel:
    """Return a small Llama whose logits are far apart, so that rounding chooses nothing; it repeats itself after a while."""
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=160, bos_token_id=None, eos_token_id=None, pad_token_id=0,
        tie_word_embeddings=False, attn_implementation="eager",
    )  # fmt: skip
    generator = torch.Generator().manual_seed(seed)
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.copy_(
                    torch.randn(parameter.shape, generator=generator) * 1.5 * parameter.shape[-1] ** -0.5
                )
    return model


@pytest.fixture(scope="session")
def model() -> PreTrainedModel:
    return make_model()


@pytest.fixture
def fresh_model() -> PreTrainedModel:
    return make_model()


@pytest.fixture(scope="session")
def zoo_model() -> PreTrainedModel:
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        specdec_zoo.path("target"), dtype=torch.float32
    )
    return model


@pytest.fixture(scope="session")
def tokenizer():
    return AutoTokenizer.from_pretrained(specdec_zoo.path("target"))


@pytest.fixture(scope="session")
def batch() -> dict[str, torch.Tensor]:
    """Three prompts of different lengths, padded on the left."""
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(1, VOCAB, (3, 18), generator=generator)
    mask = torch.ones_like(ids)
    mask[1, :13] = mask[2, :5] = 0
    return {"input_ids": ids.masked_fill(mask == 0, 0), "attention_mask": mask}


@pytest.fixture
def both(model, batch) -> Callable[..., tuple[Any, Any]]:
    """Call `generate` as it is and with specdec, each with parameters of its own making."""

    def call(speculative_config: Any = NGRAM, **given: Any) -> tuple[Any, Any]:
        made = {name: value() if name.endswith("_") else value for name, value in given.items()}
        named = {name.rstrip("_"): value for name, value in made.items()}
        again = {name.rstrip("_"): value() if name.endswith("_") else value for name, value in given.items()}
        inputs = {} if "input_ids" in named else batch
        return model.generate(**inputs, **named), model.generate(
            **inputs,
            **again,
            custom_generate=specdec_transformers.generate,
            speculative_config=speculative_config,
        )

    return call
