"""`specdec convert`: formats change, bits and drafts do not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from eagle_check.layout import Layout, write_head
from eagle_check.session import EagleSession
from eagle_check.shape import Shape, random_tensors
from eagle_check.targets import make_proposer, make_reference
from head_check.session import whole_life
from head_check.target import NUM_LAYERS, check, target_model
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig

from specdec import LLM, ConfigError, SamplingParams
from specdec_cli.main import run
from specdec_plugin_eagle import EagleSettings
from specdec_plugin_eagle.loading import load_eagle, load_eagle3
from specdec_plugin_eagle.saving import save_eagle, save_eagle3
from specdec_runtime.drafting import HeadCheckpoint

ONE = Shape(is_eagle3=False, has_own_lm_head=False)
THREE = Shape(num_logits=40, has_map=True)
HEADS: dict[str, tuple[Shape, Layout]] = {
    "1": (ONE, Layout()),
    "1 with everything": (
        replace(ONE, has_fc_bias=True, has_own_embedding=True, has_own_lm_head=True),
        Layout(),
    ),
    "3": (THREE, Layout()),
    "3 with everything": (
        Shape(
            num_logits=40,
            has_map=True,
            hidden=24,
            head_dim=6,
            has_own_embedding=True,
            is_normed_residual=True,
            has_fc_norms=True,
            is_normed_carry=True,
            num_layers=2,
            logit_scale=0.5,
            has_attention_bias=True,
        ),
        Layout(aux_place="eagle_config", is_sharded=True),
    ),
    "3 without ids of layers": (replace(THREE, has_norm_before_fc=True), Layout(aux_place=None)),
    "3 on the last state": (replace(THREE, num_aux=0), Layout(aux_place=None)),
    "parallel": (replace(THREE, mask_id=60), Layout()),
}


def stored(folder: Path) -> dict[str, tuple[torch.dtype, bytes]]:
    found = {}
    for file in folder.glob("*.safetensors"):
        with safe_open(file, "pt") as opened:
            for name in opened.keys():  # noqa: SIM118  no mapping
                tensor = opened.get_tensor(name)
                found[name] = tensor.dtype, tensor.flatten().view(torch.uint8).numpy().tobytes()
    return found


def convert(*arguments: object) -> int:
    return run(["convert", *map(str, arguments)])


def meaning(folder: Path, shape: Shape) -> dict[str, Any]:
    config = json.loads((folder / "config.json").read_text())
    settings = EagleSettings.from_dict(config, "head", is_eagle3=shape.is_eagle3)
    layer = settings.layer_config.to_dict()
    read = None if settings.aux_layers is None else settings.aux_layers.inputs(NUM_LAYERS)
    return {
        **vars(settings),
        "aux_layers": read,
        "layer_config": {key: layer[key] for key in LlamaConfig().to_dict()},
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("head", HEADS)
def test_there_and_back_is_the_same_to_the_last_bit(tmp_path: Path, head: str, dtype: torch.dtype) -> None:
    shape, layout = HEADS[head]
    tensors = {n: t.to(dtype) if t.is_floating_point() else t for n, t in random_tensors(shape).items()}
    source, middle, back = (tmp_path / name for name in ("source", "middle", "back"))
    write_head(source, shape, tensors, layout)
    before = stored(source)
    assert convert(source, middle, "--to", "speculators", "--num-speculative-tokens", 5) == 0
    assert convert(middle, back, "--to", "published") == 0
    assert stored(back) == before
    assert sorted(stored(middle).values(), key=str) == sorted(before.values(), key=str)
    assert meaning(back, shape) == meaning(middle, shape) == meaning(source, shape)
    again = tmp_path / "again"
    assert convert(back, again, "--to", "speculators", "--num-speculative-tokens", 5) == 0
    assert (again / "config.json").read_text() == (middle / "config.json").read_text()
    assert stored(source) == before


@pytest.mark.parametrize("head", ["1 with everything", "3 with everything"])
def test_the_converted_head_drafts_the_same(tmp_path: Path, head: str) -> None:
    shape, layout = HEADS[head]
    tensors = random_tensors(shape)
    write_head(tmp_path / "source", shape, tensors, layout)
    assert convert(tmp_path / "source", tmp_path / "out", "--to", "speculators") == 0
    histories = []
    for name in ("source", "out"):
        proposer = make_proposer(
            str(tmp_path / name),
            shape,
            is_eager=shape.logit_scale != 1.0,
            draft_sample_method="probabilistic",
        )
        session = EagleSession(proposer, make_reference(shape, tensors))
        whole_life(session)
        histories.append(session.history)
    assert histories[0] == histories[1]


def test_names_and_keys_are_those_of_the_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_head(tmp_path / "one", ONE, random_tensors(ONE))
    write_head(tmp_path / "three", replace(THREE, mask_id=60), random_tensors(replace(THREE, mask_id=60)))
    for name in ("one", "three"):
        assert (
            convert(tmp_path / name, tmp_path / f"{name} out", "--to", "speculators", "--verifier", "a/b")
            == 0
        )
    names = stored(tmp_path / "one out")
    assert {"fusion_fc.weight", "transformer.self_attn.q_proj.weight"} <= set(names)
    names = stored(tmp_path / "three out")
    assert {"layers.0.hidden_norm.weight", "layers.0.mlp.up_proj.weight", "d2t", "t2d", "mask_hidden"} <= set(
        names
    )
    assert not any(name.startswith("midlayer.") for name in names)
    config = json.loads((tmp_path / "three out/config.json").read_text())
    assert config["speculators_model_type"] == "peagle"
    assert config["speculators_config"] == {
        "algorithm": "peagle",
        "default_proposal_method": "greedy",
        "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
        "verifier": {"name_or_path": "a/b", "architectures": []},
    }
    assert config["draft_vocab_size"] == 40
    assert config["mask_token_id"] == 60
    assert config["transformer_layer_config"]["model_type"] == "llama"
    assert "draft_vocab_size" not in config["transformer_layer_config"]
    with safe_open(tmp_path / "one out/model.safetensors", "pt") as opened:
        assert opened.metadata() == {"format": "pt"}


def test_dry_run_shows_all_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_head(tmp_path / "head", THREE, random_tensors(THREE))
    out = tmp_path / "out"
    assert convert(tmp_path / "head", out, "--to", "speculators", "--dry-run", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["method"], shown["is_written"], shown["out"]) == ("eagle3", False, str(out))
    assert not out.exists()
    renamed = {entry["from"]: entry["to"] for entry in shown["tensors"]}
    assert renamed["midlayer.hidden_norm.weight"] == "layers.0.hidden_norm.weight"
    assert set(renamed) == set(stored(tmp_path / "head"))
    assert {"from": "fc.weight", "to": "fc.weight", "shape": [32, 96]} in shown["tensors"]
    assert shown["config"]["eagle_aux_hidden_state_layer_ids"] == [1, 3, 6]
    assert convert(tmp_path / "head", out, "--to", "speculators", "--dry-run") == 0
    text = capsys.readouterr().out
    assert "midlayer.mlp.up_proj.weight" in text
    assert "norm_before_residual" in text
    assert text.rstrip().endswith(f"eagle3 head would be written to {out}")


def served(target: Path, head: Path) -> LLM:
    return LLM(
        str(target),
        speculative_config={"model": head},
        dtype="float32",
        max_model_len=96,
        skip_tokenizer_init=True,
    )


def test_a_converted_head_names_its_target(tmp_path: Path) -> None:
    target_model().save_pretrained(tmp_path / "target")
    write_head(tmp_path / "head", THREE, random_tensors(THREE))
    out = tmp_path / "speculator"
    assert (
        convert(
            tmp_path / "head", out, "--to", "speculators", "--verifier", tmp_path / "target",
            "--num-speculative-tokens", 2,
        )
        == 0
    )  # fmt: skip
    verifier = json.loads((out / "config.json").read_text())["speculators_config"]["verifier"]
    assert verifier == {"name_or_path": str(tmp_path / "target"), "architectures": ["LlamaForCausalLM"]}
    with pytest.raises(
        ConfigError, match=r"verifier\.name_or_path of its config\.json is '.*/target', which is no hub id"
    ):
        LLM(model=str(out))
    llm = served(tmp_path / "target", out)
    params = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
    output = llm.generate([[3, 1, 4, 1, 5]], params)[0]
    assert output.metrics.num_drafts > 0
    assert output.metrics.num_draft_tokens > output.metrics.num_drafts
    plain = LLM(str(tmp_path / "target"), dtype="float32", max_model_len=96, skip_tokenizer_init=True)
    assert plain.generate([[3, 1, 4, 1, 5]], params)[0].outputs[0].token_ids == output.outputs[0].token_ids


def test_an_older_speculator_is_served_too(tmp_path: Path) -> None:
    target_model().save_pretrained(tmp_path / "target")
    write_head(tmp_path / "head", ONE, random_tensors(ONE))
    out = tmp_path / "speculator"
    assert convert(tmp_path / "head", out, "--to", "speculators", "--verifier", tmp_path / "target") == 0
    llm = served(tmp_path / "target", out)
    output = llm.generate([[3, 1, 4, 1, 5]], SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True))[
        0
    ]
    assert output.metrics.num_draft_tokens > 0


def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head, out = tmp_path / "head", tmp_path / "out"
    write_head(head, THREE, random_tensors(THREE))
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text('{"hidden_size": 4}')
    save_file({"a.weight": torch.ones(2)}, other / "model.safetensors")
    twice = tmp_path / "twice"
    write_head(twice, THREE, random_tensors(THREE) | {"model.norm.weight": torch.ones(32)})
    full = tmp_path / "full"
    full.mkdir()
    (full / "notes.txt").write_text("mine")
    for arguments, message in (
        ((head, out, "--to", "published"), "is in the published layout already: nothing to convert"),
        ((head, full, "--to", "speculators"), f"{full} is not empty"),
        ((head, full / "notes.txt", "--to", "speculators"), "notes.txt is a file: give a directory"),
        (
            (other, out, "--to", "speculators"),
            "is not an EAGLE head: it has no layers.0.self_attn.q_proj.weight",
        ),
        ((twice, out, "--to", "speculators"), "are the same part of the head"),
        ((tmp_path / "nowhere", out, "--to", "speculators"), "nowhere"),
        ((head, out, "--to", "speculators", "--num-speculative-tokens", 0), "give 1 or more"),
        ((head, out, "--to", "elsewhere"), "elsewhere"),
        ((head, out), "--to"),
    ):
        assert convert(*arguments) == 2
        said = capsys.readouterr().err
        assert message in said
        assert len(said.splitlines()) == 1
    assert not out.exists()
    assert convert(head, out, "--to", "speculators") == 0
    capsys.readouterr()
    assert convert(out, tmp_path / "third", "--to", "published", "--verifier", "x") == 2
    assert "--verifier is written in the speculators format only" in capsys.readouterr().err


@pytest.mark.parametrize(
    "shape", [HEADS["1 with everything"][0], HEADS["3 with everything"][0]], ids=["1", "3"]
)
def test_a_loaded_head_is_saved_as_it_was_published(tmp_path: Path, shape: Shape) -> None:
    source = tmp_path / "source"
    write_head(source, shape, random_tensors(shape))
    handle, checkpoint = check().handle, HeadCheckpoint(str(source))
    if shape.is_eagle3:
        settings = EagleSettings.from_dict(checkpoint.config, "head", is_eagle3=True)
        head = load_eagle3(checkpoint, handle, settings, is_parallel=False)
        save_eagle3(head, tmp_path / "out", checkpoint.config)
    else:
        save_eagle(load_eagle(checkpoint, handle), tmp_path / "out", checkpoint.config)
    own = {"embed_tokens.weight"} if shape.is_eagle3 else {"embed_tokens.weight", "lm_head.weight"}
    assert stored(tmp_path / "out") == {n: t for n, t in stored(source).items() if n not in own}


def test_a_head_with_norms_before_fc_has_no_place_in_the_speculators_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its `layernorms` are others: one after the layer, one of the layer's input."""
    shape = replace(ONE, has_para_norms=True)
    write_head(tmp_path / "head", shape, random_tensors(shape))
    assert convert(tmp_path / "head", tmp_path / "out", "--to", "speculators") == 2
    assert (
        "add_para_norm: the speculators format has no norm of the state before fc" in capsys.readouterr().err
    )


@pytest.mark.parametrize("to", ["published", "speculators"])
def test_pickles_become_safetensors(tmp_path: Path, to: str) -> None:
    source = tmp_path / "head"
    tensors = random_tensors(THREE)
    write_head(source, THREE, tensors)
    before = stored(source)
    held = load_file(source / "model.safetensors")
    (source / "model.safetensors").unlink()
    torch.save(held, source / "pytorch_model.bin")
    assert convert(source, tmp_path / "out", "--to", to) == 0
    assert sorted(stored(tmp_path / "out").values(), key=str) == sorted(before.values(), key=str)
    make_proposer(str(tmp_path / "out"), THREE)
