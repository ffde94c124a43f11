"""What cannot be served is refused by name, with a remedy."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from speccheck.hybrids import hybrid
from transformers import DynamicCache
from transformers.generation.logits_process import LogitsProcessor

import specdec_transformers
from specdec import ConfigError
from specdec_runtime.models import cache_argument

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "beams": ({"num_beams": 3}, r"beam_search \(num_beams=3\): set num_beams=1"),
    "prompt lookup": ({"prompt_lookup_num_tokens": 3}, "prompt_lookup_num_tokens=3 .*'method': 'ngram'"),
    "guidance": ({"guidance_scale": 1.5}, "guidance_scale: it runs the model along one text"),
    "attentions": ({"return_dict_in_generate": True, "output_attentions": True}, "output_attentions=True"),
    "states": ({"return_dict_in_generate": True, "output_hidden_states": True}, "output_hidden_states=True"),
    "ranks": ({"synced_gpus": True}, "synced_gpus=True"),
    "positions": ({"position_ids": torch.arange(18)[None] + 1}, "leave position_ids out"),
    "too long": ({"max_new_tokens": 200}, "18 tokens and 200 new ones .* 160 positions.*at most 142"),
    "config": ({"speculative_config": {"method": "ngram", "k": 3}}, "no key 'k'|'k'"),
    "options": ({"engine_options": {"max_seqs": 3}}, "engine_options has no 'max_seqs'; it takes .*max_num_seqs"),
    "mask": ({"attention_mask": torch.tensor([[1] * 17 + [0]])}, "padding_side='left'"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(model, batch, case) -> None:
    given, message = REFUSED[case]
    row = {"input_ids": batch["input_ids"][:1], "max_new_tokens": 4}
    with pytest.raises(ConfigError, match=message):
        model.generate(**row | given, custom_generate=specdec_transformers.generate)


@pytest.mark.parametrize("hybrid_name", [None, "mamba2"])
def test_a_cache_is_refused(model, batch, hybrid_name) -> None:
    model = hybrid(hybrid_name) if hybrid_name else model
    name = cache_argument(model)
    with pytest.raises(ConfigError, match=f"generate: {name}: .*whole conversation"):
        model.generate(
            batch["input_ids"][:1],
            max_new_tokens=4,
            custom_generate=specdec_transformers.generate,
            **{name: DynamicCache(config=model.config)},
        )


def test_an_assistant_is_refused(model, batch) -> None:
    with pytest.raises(ConfigError, match=r"assistant_model beside specdec: .*'draft_model'"):
        model.generate(
            batch["input_ids"][:1],
            assistant_model=model,
            max_new_tokens=4,
            custom_generate=specdec_transformers.generate,
        )


def test_embeddings_are_refused(model) -> None:
    with pytest.raises(ConfigError, match="inputs_embeds: specdec takes token ids alone"):
        model.generate(
            inputs_embeds=torch.zeros(1, 4, 32),
            max_new_tokens=4,
            custom_generate=specdec_transformers.generate,
        )


def test_dropout_is_refused(fresh_model, batch) -> None:
    fresh_model.config.attention_dropout = 0.1
    fresh_model.train()
    with pytest.raises(ConfigError, match=r"call model\.eval\(\)"):
        fresh_model.generate(
            batch["input_ids"][:1], max_new_tokens=4, custom_generate=specdec_transformers.generate
        )


class Broken(LogitsProcessor):
    """Raises once the text has grown by three tokens."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if input_ids.shape[1] > 20:
            raise KeyError("no such prefix")
        return scores


def test_a_processor_that_raises_is_an_error(model, batch, caplog) -> None:
    with pytest.raises(RuntimeError, match="row 0 cannot go on: KeyError: 'no such prefix'"):
        model.generate(
            **batch,
            logits_processor=[Broken()],
            max_new_tokens=8,
            custom_generate=specdec_transformers.generate,
        )
    assert "ends: KeyError: 'no such prefix'" in caplog.text
    expected = model.generate(**batch, max_new_tokens=8)
    found = model.generate(**batch, max_new_tokens=8, custom_generate=specdec_transformers.generate)
    assert torch.equal(found, expected)


def test_what_has_no_effect_is_said(model, batch, caplog) -> None:
    row = batch["input_ids"][:1]
    for _ in range(2):
        model.generate(row, use_cache=False, max_new_tokens=2, custom_generate=specdec_transformers.generate)
    assert [r.message for r in caplog.records if "use_cache has no effect" in r.message] != []
    assert sum("use_cache" in r.message for r in caplog.records) == 1
