"""Layers written into a target's directory are found there, and `transformers` still loads the target."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
import torch
from mtp_check.targets import config_of, make_target, scramble
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import specdec_zoo
from specdec import LLM, SamplingParams
from specdec_plugin_mtp import MtpHead, add_mtp_layers


def random_head(model: torch.nn.Module, num_layers: int) -> MtpHead:
    torch.manual_seed(4)
    vocab_size = model.lm_head.weight.shape[0]
    head = MtpHead(model.config, model.model.embed_tokens, model.lm_head, vocab_size, num_layers=num_layers)
    scramble(head.stages)
    return head


@pytest.fixture
def target(tmp_path: Path) -> Path:
    torch.manual_seed(1)
    folder = tmp_path / "target"
    AutoModelForCausalLM.from_config(config_of("llama")).save_pretrained(folder)
    (folder / "notes.txt").write_text("kept")
    return folder


def in_shards(folder: Path) -> None:
    """Spread a checkpoint over two files with an index."""
    tensors = load_file(folder / "model.safetensors")
    weight_map = {}
    for number, part in enumerate((sorted(tensors)[::2], sorted(tensors)[1::2])):
        file = f"model-{number}.safetensors"
        save_file({name: tensors[name] for name in part}, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    (folder / "model.safetensors").unlink()
    index = {"metadata": {"total_size": 1000}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


@pytest.mark.parametrize("is_in_place", [False, True])
@pytest.mark.parametrize("has_shards", [False, True])
@pytest.mark.parametrize("num_layers", [1, 2])
def test_round_trip(target, tmp_path, is_in_place, has_shards, num_layers, caplog):
    before = load_file(target / "model.safetensors")
    head = random_head(AutoModelForCausalLM.from_pretrained(target), num_layers).to(torch.bfloat16)
    if has_shards:
        in_shards(target)
    out = target if is_in_place else tmp_path / "new" / "folder"
    add_mtp_layers(target, head, out)
    config = json.loads((out / "config.json").read_text())
    assert config["num_nextn_predict_layers"] == num_layers
    assert (out / "notes.txt").read_text() == "kept"
    written = load_file(out / "model-mtp.safetensors")
    assert len(written) == 13 * num_layers
    assert {name.split(".")[2] for name in written} == {str(2 + i) for i in range(num_layers)}
    assert torch.equal(written["model.layers.2.eh_proj.weight"], head.stage(0).join.weight)
    assert written["model.layers.2.self_attn.q_proj.weight"].dtype == torch.bfloat16
    if has_shards:
        index = json.loads((out / "model.safetensors.index.json").read_text())
        size = sum(t.numel() * t.element_size() for t in written.values())
        assert index["metadata"]["total_size"] == 1000 + size
        assert set(written) < set(index["weight_map"])

    logging.getLogger("transformers").propagate = True
    with caplog.at_level(logging.WARNING, "transformers"):
        again = AutoModelForCausalLM.from_pretrained(out)
    assert ("UNEXPECTED" in caplog.text) == has_shards
    for name, weight in before.items():
        assert torch.equal(again.state_dict()[name], weight)

    keys = {"method": "mtp", "on_proposer_error": "raise"}
    llm = LLM(model=str(out), dtype="float32", skip_tokenizer_init=True, speculative_config=keys)
    proposer = llm._built.engine.proposer
    assert proposer._config.num_speculative_tokens == num_layers
    for layer in range(num_layers):
        for (name, ours), theirs in zip(
            head.stage(layer).state_dict().items(),
            proposer._head.stage(layer).state_dict().values(),
            strict=True,
        ):
            if not name.startswith(("embed_tokens", "lm_head")):
                assert torch.equal(ours.float(), theirs), name


def test_the_zoo_with_layers(tmp_path):
    """A trained target: the head that is trained later is written and served the same way."""
    source = Path(specdec_zoo.path("target"))
    model = AutoModelForCausalLM.from_pretrained(source)
    add_mtp_layers(source, random_head(model, 1).to(torch.bfloat16), tmp_path)
    params = SamplingParams(temperature=0.0, max_tokens=12)
    wanted = LLM(model="zoo", dtype="float32").generate(["import os\n"], params)[0].outputs[0].text
    llm = LLM(
        model=str(tmp_path),
        dtype="float32",
        speculative_config={"method": "mtp", "num_speculative_tokens": 2},
    )
    assert llm._built.engine.proposer._runner.chain is not None
    assert llm.generate(["import os\n"], params)[0].outputs[0].text == wanted


def test_what_is_not_a_target(target, tmp_path):
    head = random_head(AutoModelForCausalLM.from_pretrained(target), 1)
    with pytest.raises(ValueError, match="it is not a target's directory"):
        add_mtp_layers(tmp_path, head, tmp_path / "out")
    add_mtp_layers(target, head, target)
    with pytest.raises(ValueError, match="already: take the target without such layers"):
        add_mtp_layers(target, head, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_mixtures_are_not_written(tmp_path):
    folder = tmp_path / "glm"
    make_target("glm4_moe", 1, folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    head = MtpHead(model.config, model.model.embed_tokens, model.lm_head, 97, is_sparse=True)
    with pytest.raises(ValueError, match="a mixture of experts are not written"):
        add_mtp_layers(folder, head, tmp_path / "out")


def test_a_head_can_be_trained(target):
    model = AutoModelForCausalLM.from_pretrained(target)
    head = random_head(model, 1)
    head.config._attn_implementation = "sdpa"
    ids = torch.arange(12).reshape(1, 12)
    mask = torch.full((11, 11), torch.finfo(torch.float32).min).triu(1)[None, None]
    states, carry = head(ids[:, 1:], torch.arange(11)[None], torch.randn(1, 11, 32), attention_mask=mask)
    head.project(states).logsumexp(-1).sum().backward()
    assert states.shape == carry.shape == (1, 11, 32)
    assert head.stage(0).join.weight.grad.abs().sum() > 0
