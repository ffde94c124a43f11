"""Layers on several devices, as far as one host can show it: pieces that all lie on the host, hooks between them, and the parts
that tell devices apart."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers as hf
from accelerate import dispatch_model

from specdec import LLM, ConfigError, SamplingParams
from specdec_runtime.interfaces import KVCache, PackedBatch, Segment
from specdec_runtime.models.spread import near, offloaded, places
from specdec_runtime.runner.sdpa import SdpaAttention

PIECES = {
    "model.embed_tokens": "cpu",
    "model.layers": "cpu",
    "model.norm": "cpu",
    "model.rotary_emb": "cpu",
    "lm_head": "cpu",
}
PROMPTS = [[3, 1, 4], [1, 5, 9, 2, 6]]
GREEDY = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)


def spread(model_map: dict[str, Any]) -> Any:
    return SimpleNamespace(hf_device_map=model_map)


@pytest.fixture
def model() -> hf.PreTrainedModel:
    torch.manual_seed(1)
    config = hf.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.2,
    )  # fmt: skip
    return hf.LlamaForCausalLM(config).eval()


def tokens(model: Any, **arguments: Any) -> list[list[int]]:
    llm = LLM(model, dtype="float32", skip_tokenizer_init=True, **arguments)
    return [output.outputs[0].token_ids for output in llm.generate(PROMPTS, GREEDY)]


def test_pieces_say_what_the_whole_says(model: hf.PreTrainedModel, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    expected = tokens(str(tmp_path))
    assert tokens(str(tmp_path), device_map="auto") == expected
    assert tokens(str(tmp_path), device_map=PIECES) == expected


def test_hooks_between_layers_are_kept(model: hf.PreTrainedModel, caplog: pytest.LogCaptureFixture) -> None:
    expected = [
        model.generate(torch.tensor([p]), max_new_tokens=8, do_sample=False, eos_token_id=None)
        for p in PROMPTS
    ]
    hooked = dispatch_model(model, PIECES, force_hooks=True)
    found = tokens(hooked)
    assert found == [text[0, len(prompt) :].tolist() for text, prompt in zip(expected, PROMPTS, strict=True)]
    assert "its layers are spread by device_map); the model's own forward runs instead" in caplog.text


def test_what_contradicts_a_map_is_refused() -> None:
    for arguments, message in (
        ({"device": "cpu", "device_map": "auto"}, "device_map and device both say"),
        ({"device_map": 3}, "device_map=3 must be"),
    ):
        with pytest.raises(ConfigError, match=message):
            LLM("zoo", **arguments)


def test_places() -> None:
    assert places(spread({"": "cpu"})) == set()
    assert places(spread({"a": 0, "b": 1})) == {"cuda:0", "cuda:1"}
    assert offloaded(spread({"a": 0, "b": 1})) == set()
    assert offloaded(spread({"a": 0, "b": "cpu", "c": "disk"})) == {"cpu", "disk"}
    assert offloaded(spread({"a": "cpu", "b": "disk"})) == {"disk"}


def test_a_proposer_has_weights_where_inputs_are(model: hf.PreTrainedModel) -> None:
    assert near(model.lm_head, model) is model.lm_head
    model.hf_device_map = {"model": "cpu", "lm_head": "meta"}
    assert near(model.lm_head, model) is model.lm_head


def test_each_layer_is_cached_where_it_is() -> None:
    cache = KVCache(8, torch.device("cpu"))
    rows = torch.ones(2, 1, 4)
    cache.ensure(0, rows, rows)
    cache.ensure(1, rows.to("meta"), rows.to("meta"))
    assert [cache.keys[layer].device.type for layer in (0, 1)] == ["cpu", "meta"]
    assert cache.bytes_by_device == {torch.device("cpu"): 32, torch.device("meta"): 32}
    cache.gather(torch.tensor([1]), torch.tensor([[1]]))


def test_attention_runs_where_its_layer_is() -> None:
    generator = torch.Generator().manual_seed(0)

    def normal(rows: int, heads: int) -> torch.Tensor:
        return torch.randn(rows, heads, 8, generator=generator)

    mask = torch.tensor([[True, False, False], [True, True, False], [True, False, True]])
    segments = [Segment(0, 4, 0, 0), Segment(4, 3, 16, 0, tree_mask=mask, depths=torch.tensor([0, 1, 1]))]
    slots = torch.tensor([0, 1, 2, 3, 16, 17, 18])
    batch = PackedBatch(slots, slots, segments, slots, None)
    query, key, value = normal(7, 4), normal(7, 2), normal(7, 2)
    cache = KVCache(32, torch.device("cpu"))
    attention = SdpaAttention(cache, 32)
    for layer, device in enumerate(("cpu", "meta", "cpu")):
        there = (each.to(device) for each in (query, key, value))
        found = attention.attend(layer, batch, *there, scaling=0.5)
        assert found.device.type == cache.keys[layer].device.type == device
    alone = SdpaAttention(KVCache(32, torch.device("cpu")), 32)
    assert torch.equal(found, alone.attend(0, batch, query, key, value, scaling=0.5))
