"""Blocks of GGUF files that stay blocks: their numbers, and models that have them."""

from __future__ import annotations

import logging
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from random_blocks import GGUF_KINDS, dequantised, random_blocks
from safetensors.torch import load_file
from tiny_gguf import tiny_llama, write_gguf

from specdec import LLM, ConfigError, ModelError, SamplingParams
from specdec.folders import compiled_folder
from specdec_runtime.gguf import convert, kept_blocks
from specdec_runtime.gguf.blocks import numbers_of
from specdec_runtime.interfaces import BlockEmbedding, BlockLinear
from specdec_runtime.interfaces.blocks import KINDS, pack, widened

load = convert._load
GREEDY = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)
PROMPT = {"prompt_token_ids": [5, 9, 40, 41, 42, 9, 40]}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for converted models; compiled code is kept where it was."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(compiled_folder()))
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("kind", GGUF_KINDS)
@pytest.mark.parametrize(("num_rows", "depth"), [(1, 256), (37, 512)])
def test_weights_are_those_of_the_gguf_package(kind, num_rows, depth) -> None:
    blocks = random_blocks(kind, num_rows, depth)
    packed = pack(numbers_of(blocks, kind), KINDS[kind])
    weights = widened(torch.from_numpy(packed), KINDS[kind])[:num_rows]
    assert torch.equal(weights.view(torch.int32), dequantised(blocks, kind).view(torch.int32))
    assert packed.nbytes * 8 / packed.shape[0] / 16 / depth <= KINDS[kind].bits + 1


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_what_the_gguf_package_quantises_is_read(kind) -> None:
    weights = np.random.default_rng(1).standard_normal((19, 96)).astype(np.float32)
    blocks = gguf.quants.quantize(weights, GGMLQuantizationType[kind])
    module = BlockLinear(kind, 19, 96)
    module.weight.data = torch.from_numpy(pack(numbers_of(blocks, kind), KINDS[kind]))
    expected = dequantised(blocks, kind)
    assert torch.equal(module(torch.eye(96)), expected.T)
    embedding = BlockEmbedding(kind, 19, 96, torch.bfloat16, 3.0)
    embedding.weight = module.weight
    ids = torch.tensor([[18, 3], [3, 0]])
    assert torch.equal(embedding(ids), expected.bfloat16()[ids] * 3.0)


def tiny(path: Path, kind: str | None = "Q8_0") -> str:
    return str(write_gguf(path / "tiny.gguf", tiny_llama(), kind=kind))


def ids(llm: LLM) -> list[int]:
    return list(llm.generate(PROMPT, GREEDY)[0].outputs[0].token_ids)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1", "Q5_0"])
def test_a_model_in_blocks_says_what_the_widened_one_says(tmp_path, cache, kind) -> None:
    file = tiny(tmp_path, kind)
    llm = LLM(file, dtype="float32")
    model = llm._parts.scorer.target.model
    linears = [m for m in model.modules() if isinstance(m, BlockLinear)]
    assert len(linears) == 2 * 7 + 1
    assert not [m for m in model.modules() if type(m) is torch.nn.Linear]
    wide = LLM(file, dtype="float32", weights="widen")
    assert ids(llm) == ids(wide)
    drafting = LLM(file, dtype="float32", speculative_config={"method": "ngram", "num_speculative_tokens": 3})
    assert ids(drafting) == ids(llm)
    names = sorted(path.name.rsplit("-", 1)[0] for path in (cache / "models").glob("t*-*"))
    assert names == ["tiny-float32", "tiny-float32-blocks"]


def test_an_exact_product_of_each_row_of_weights(tmp_path) -> None:
    file = tiny(tmp_path)
    narrow, wide = (
        LLM(file, dtype="float32", weights=weights)._parts.scorer.target.model
        for weights in ("published", "widen")
    )
    for name, module in narrow.named_modules():
        if isinstance(module, BlockLinear | BlockEmbedding):
            rows = module.wide_rows(torch.arange(module.shape[0]))
            assert torch.equal(rows, wide.get_submodule(name).weight), name


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_rows_that_are_marked_come_to_the_same_blocks(tmp_path, monkeypatch, kind, dtype) -> None:
    file = Path(tiny(tmp_path, kind))
    folders = [tmp_path / "marked", tmp_path / "dequantised"]
    for folder, may_mark in zip(folders, (True, False), strict=True):
        calls = []
        monkeypatch.setattr(kept_blocks, "can_mark", lambda _tensors, may_mark=may_mark: may_mark)
        monkeypatch.setattr(convert, "_load", lambda *given, calls=calls: calls.append(1) or load(*given))
        folder.mkdir()
        convert.convert(file, dtype, folder, keeps_blocks=True)
        assert len(calls) == 1
    marked, dequantised = (load_file(folder / "model.safetensors") for folder in folders)
    assert marked.keys() == dequantised.keys()
    assert all(torch.equal(marked[name], dequantised[name]) for name in marked)
    assert any(weight.dtype == torch.uint8 for weight in marked.values())


@pytest.mark.parametrize("changed", ["copied", "calculated"])
def test_marks_that_are_left_make_the_model_be_read_again(tmp_path, monkeypatch, changed) -> None:
    """As a layer of transformers may that splits a matrix, or stores something made of it."""

    def and_change(*given):
        model = load(*given)
        weight = model.model.embed_tokens.weight.detach()
        if changed == "copied":
            model.model.norm.more = torch.nn.Parameter(weight[:3].clone())
        else:
            model.model.norm.more = torch.nn.Parameter(weight.sum(0))
        return model

    monkeypatch.setattr(convert, "_load", and_change)
    convert.convert(Path(tiny(tmp_path)), "float32", tmp_path, keeps_blocks=True)
    kept = load_file(tmp_path / "model.safetensors")
    assert not kept["model.norm.more"].isnan().any()
    assert kept["model.norm.more"].abs().max() < 100
    assert kept["model.layers.0.mlp.up_proj.weight"].dtype == torch.uint8


def test_columns_in_another_order_are_no_rows_of_the_file(tmp_path, monkeypatch, caplog) -> None:
    def and_roll(*given):
        model = load(*given)
        weight = model.model.layers[1].mlp.down_proj.weight
        weight.data = torch.cat([weight[:, :16], weight[:, 16:].roll(16, 1)], 1)
        return model

    file = Path(tiny(tmp_path))
    monkeypatch.setattr(convert, "_load", and_roll)
    with caplog.at_level(logging.WARNING):
        convert.convert(file, "float32", tmp_path, keeps_blocks=True)
    assert "read none like those of model.layers.1.mlp.down_proj" in caplog.text
    kept = load_file(tmp_path / "model.safetensors")["model.layers.1.mlp.down_proj.weight"]
    read = load(file, "float32", str(tmp_path)).model.layers[1].mlp.down_proj.weight
    assert torch.equal(kept, torch.cat([read[:, :16], read[:, 16:].roll(16, 1)], 1))


def test_files_without_blocks_are_loaded_as_they_were(tmp_path, caplog) -> None:
    with caplog.at_level(logging.WARNING):
        assert ids(LLM(tiny(tmp_path, None), dtype="float32"))
    assert "are widened" not in caplog.text


def test_other_types_are_widened_and_named(tmp_path, caplog) -> None:
    with caplog.at_level(logging.WARNING):
        llm = LLM(tiny(tmp_path, "MXFP4"), dtype="float32")
    assert (
        "tiny.gguf: its weights are widened to float32, since products read none like those of model."
        in caplog.text
    )
    assert "(types: MXFP4)" in caplog.text
    assert not any(isinstance(m, BlockLinear) for m in llm._parts.scorer.target.model.modules())


def test_wrong_options_are_told(tmp_path) -> None:
    with pytest.raises(ConfigError, match="weights='narrow' must be one of published, widen"):
        LLM("zoo", weights="narrow")
    with pytest.raises(ConfigError, match="activation_bits=4 must be 8"):
        LLM("zoo", activation_bits=4)
    with pytest.raises(ConfigError, match="activation_bits=8 is for weights that stay in blocks"):
        LLM("zoo", activation_bits=8)


def test_a_file_that_ends_within_its_blocks(tmp_path) -> None:
    file = Path(tiny(tmp_path))
    file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(ModelError, match=r"tiny\.gguf"):
        LLM(str(file), dtype="float32")


def test_the_sizes_of_blocks_are_those_of_the_gguf_package() -> None:
    for name in GGUF_KINDS:
        kind = KINDS[name]
        size, num_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
        assert size == kind.size
        assert kind.block_bytes <= 16 * num_bytes * 1.03
