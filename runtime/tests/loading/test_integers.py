"""GPTQ, AWQ and compressed-tensors: weights that stay integers, and checkpoints that are damaged."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from speccheck.engines import greedy, tokens_of
from speccheck.identity import assert_identical, references
from speccheck.models import make, prompts
from speccheck.multimodal import SERVED
from tiny_integers import Integers, tiny_llama, write
from transformers import AutoModelForCausalLM, PreTrainedModel

from specdec import LLM, ConfigError, ModelError
from specdec_runtime.backends import has_native_bfloat16
from specdec_runtime.interfaces import BlockLinear

PROMPTS = prompts([3, 41, 1, 23], seed=3)
MAX_TOKENS = 12
KINDS = {
    "gptq": (Integers("gptq", group=64), "Z4_64"),
    "gptq 8 bits": (Integers("gptq", 8, is_symmetric=True), "Z8_128"),
    "gptq_v2": (Integers("gptq_v2", group=32), "Z4_32"),
    "gptq even": (Integers("gptq", group=32, is_symmetric=True), "Q4_0"),
    "awq": (Integers("gemm"), "Z4_128"),
    "packed": (Integers("pack-quantized", is_symmetric=True), "Z4_128"),
    "packed with zeros": (Integers("pack-quantized", group=32), "Z4_32"),
    "packed 8 bits": (Integers("pack-quantized", 8, group=-1, is_symmetric=True), "Z8_128"),
    "int8": (Integers("int-quantized", 8, group=-1, is_symmetric=True), "Z8_128"),
    "int8 with zeros": (Integers("int-quantized", 8, group=32), "Z8_32"),
}


def served(folder: Path, **options: Any) -> LLM:
    arguments = {"dtype": "float32", "max_model_len": 96, "skip_tokenizer_init": True} | options
    return LLM(model=str(folder), **arguments)


def model_of(llm: LLM) -> PreTrainedModel:
    model: PreTrainedModel = llm._parts.scorer.target.model
    return model


@pytest.mark.sampled(4, slow=6)
@pytest.mark.parametrize("name", KINDS)
def test_integers_stay_what_they_are(tmp_path: Path, name: str) -> None:
    how, kind = KINDS[name]
    dtype = torch.bfloat16 if "quantized" in how.form else torch.float16
    wide = write(tmp_path / "model", how, tiny_llama(dtype))
    llm = served(tmp_path / "model")
    model, maps = model_of(llm), 0
    for place, part in model.named_modules():
        if isinstance(part, BlockLinear):
            maps += 1
            assert part.kind == kind
            weight = part.wide_rows(torch.arange(part.out_features))
            assert torch.equal(weight, wide.get_submodule(place).weight), place
            published = part.out_features * part.in_features * how.bits // 8
            assert part.weight.nbytes <= published * (1.25 if kind.endswith(("_32", "_0")) else 1.125)
    assert maps == 2 * 7
    assert llm._parts.scorer.runner.forms[0][0].__class__.__name__ == "CompiledForm"
    expected = references(wide, PROMPTS, MAX_TOKENS)
    assert len({tuple(tokens) for tokens in expected}) == len(PROMPTS)
    assert_identical(wide, PROMPTS, expected, tokens_of(llm, PROMPTS, greedy(MAX_TOKENS)))
    ngram = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1}
    drafting = served(tmp_path / "model", speculative_config=ngram)
    assert_identical(wide, PROMPTS, expected, tokens_of(drafting, PROMPTS, greedy(MAX_TOKENS)))


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("gptq", "gptqmodel"),
        ("gptq_v2", "gptqmodel"),
        ("gptq 8 bits", "gptqmodel"),
        ("awq", "gptqmodel"),
        ("packed", "compressed_tensors"),
        ("packed 8 bits", "compressed_tensors"),
        ("int8", "compressed_tensors"),
    ],
)
def test_the_packages_read_what_is_written_here(tmp_path: Path, name: str, package: str) -> None:
    """Skipped where the package is missing, which reads these formats for `transformers`."""
    pytest.importorskip(package)
    how, _ = KINDS[name]
    wide = write(tmp_path, how, tiny_llama(torch.bfloat16 if "quantized" in how.form else torch.float16))
    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    ids = torch.tensor([PROMPTS[1]])
    with torch.no_grad():
        assert (model(ids).logits - wide(ids).logits).norm() < 1e-3 * wide(ids).logits.norm()


@pytest.mark.parametrize(
    ("how", "why"),
    [
        (
            Integers("gptq", group=64, is_shuffled=True),
            "its groups are in another order than its inputs (g_idx, act-order)",
        ),
        (
            Integers("pack-quantized", group=64, is_shuffled=True),
            "its groups are in another order than its inputs (weight_g_idx, act-order)",
        ),
        (Integers("gptq", group=16), "groups of 16 of 128 inputs are no multiple of 32"),
    ],
)
def test_what_is_no_block_is_widened_and_named(tmp_path: Path, caplog, how: Integers, why: str) -> None:
    wide = write(tmp_path / "model", how)
    with caplog.at_level(logging.WARNING):
        llm = served(tmp_path / "model")
    assert "its weights are widened to float32, and take up to 8 times the memory" in caplog.text
    assert f"model.layers.0.self_attn.q_proj: {why}" in caplog.text
    for name, weight in model_of(llm).named_parameters():
        assert torch.equal(weight, wide.get_parameter(name)), name


def test_by_name_they_are_widened(tmp_path: Path, caplog) -> None:
    wide = write(tmp_path / "model", Integers("gemm"))
    with caplog.at_level(logging.WARNING):
        llm = served(tmp_path / "model", weights="widen")
    assert "are widened" not in caplog.text
    for name, weight in model_of(llm).named_parameters():
        assert torch.equal(weight, wide.get_parameter(name)), name


@pytest.mark.parametrize("named", [None, "float16", "float32"])
def test_the_dtype_of_activations_is_one_that_is_multiplied_fast(named: str | None, tmp_path: Path) -> None:
    """Files say float16 of the scales, some in no other place than the scales themselves."""
    write(tmp_path, Integers("gptq"))
    described = json.loads((tmp_path / "config.json").read_text())
    described.pop("dtype", None)
    (tmp_path / "config.json").write_text(json.dumps(described | ({"dtype": named} if named else {})))
    fast = torch.bfloat16 if has_native_bfloat16() and named != "float32" else torch.float32
    assert model_of(served(tmp_path, dtype="auto")).dtype == fast


def test_a_draft_and_new_weights(tmp_path: Path) -> None:
    how = Integers("gptq", group=64)
    write(tmp_path / "model", how)
    other = write(tmp_path / "other", how, make(tiny_llama().config, seed=8).half())
    write(tmp_path / "packed", Integers("pack-quantized", group=32))
    drafted = {"method": "draft_model", "num_speculative_tokens": 3, "quantization": "gptq"}
    llm = served(tmp_path / "model", speculative_config=drafted | {"model": str(tmp_path / "other")})
    with pytest.raises(ConfigError, match=r"'awq' does not fit .*, which is quantised with 'gptq'"):
        served(
            tmp_path / "model",
            speculative_config=drafted | {"model": str(tmp_path / "other"), "quantization": "awq"},
        )
    with pytest.raises(ConfigError, match=r"'Z4_32', and the target's 'Z4_64'"):
        llm.update_weights(tmp_path / "packed")
    llm.update_weights(tmp_path / "other")
    expected = references(other, PROMPTS, MAX_TOKENS)
    assert_identical(other, PROMPTS, expected, tokens_of(llm, PROMPTS, greedy(MAX_TOKENS)))


def test_of_a_multimodal_model_the_text_is_served(tmp_path: Path) -> None:
    config = SERVED["gemma3"]()
    config.text_config.intermediate_size = 64
    wide = write(tmp_path / "model", Integers("gptq", group=32), make(config, seed=2).half())
    llm = served(tmp_path / "model")
    assert {type(part).__name__ for part in model_of(llm).modules()}.isdisjoint({"SiglipVisionModel"})
    assert sum(isinstance(part, BlockLinear) for part in model_of(llm).modules()) == 2 * 7
    expected = references(wide, PROMPTS, MAX_TOKENS)
    assert_identical(wide, PROMPTS, expected, tokens_of(llm, PROMPTS, greedy(MAX_TOKENS)))


MARLIN = {"num_bits": 4, "strategy": "group"}
Q = "model.layers.1.self_attn.q_proj"


@pytest.mark.parametrize(
    ("form", "change", "told"),
    [
        ("gptq", lambda t: t.pop(f"{Q}.scales"), rf"{Q}\.scales is missing"),
        ("gptq", lambda t: t.pop(f"{Q}.qzeros"), rf"{Q}\.qzeros is missing"),
        ("gptq", lambda t: t.pop(f"{Q}.qweight"), rf"1 missing, '{Q}\.weight'"),
        (
            "gptq",
            lambda t: t.update({f"{Q}.qweight": t[f"{Q}.qweight"][:12]}),
            rf"{Q}\.qweight is \[12, 128\] where \[16, 128\] of 4 bits or \[32, 128\] of 8 bits belong",
        ),
        (
            "gptq",
            lambda t: t.update({f"{Q}.scales": t[f"{Q}.scales"][:1]}),
            rf"{Q}\.scales is \[1, 128\]: 1 groups, where 128 inputs make 2 of 64",
        ),
        (
            "gemm",
            lambda t: t.update({f"{Q}.scales": t[f"{Q}.scales"][:, :100]}),
            rf"{Q}\.scales is \[2, 100\], which is no scale for each of 128 outputs",
        ),
        (
            "gemm",
            lambda t: t.update({f"{Q}.qzeros": t[f"{Q}.qzeros"][:, :9]}),
            rf"{Q}\.qzeros is \[2, 9\] where \[2, 16\] belong",
        ),
        (
            "gptq",
            lambda t: t.update({f"{Q}.g_idx": t[f"{Q}.g_idx"][:9]}),
            rf"{Q}\.g_idx is \[9\] where \[128\] belongs",
        ),
        (
            "gptq",
            lambda t: t[f"{Q}.g_idx"].fill_(7),
            rf"{Q}\.g_idx has group 7 where 2 are scaled",
        ),
        (
            "pack-quantized",
            lambda t: t.update({"model.experts.0.weight_packed": t[f"{Q}.weight_packed"].clone()}),
            r"model\.experts\.0 has integer weights, and LlamaForCausalLM has no linear map 'model\.experts\.0'",
        ),
    ],
)
def test_damaged_files(
    tmp_path: Path, form: str, change: Callable[[dict[str, Any]], object], told: str
) -> None:
    write(tmp_path / "model", Integers(form, group=64))
    file = tmp_path / "model" / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()}, file, metadata={"format": "pt"}
    )
    with pytest.raises(ModelError, match=told):
        served(tmp_path / "model")


@pytest.mark.parametrize(
    ("form", "keys", "told"),
    [
        (
            "gptq",
            {"checkpoint_format": "marlin"},
            r"weights of gptq in the format 'marlin'\): pip install gptqmodel optimum",
        ),
        ("gptq", {"bits": 3}, r"\(weights of 3 bits\): pip install gptqmodel optimum"),
        ("gemm", {"version": "gemv"}, r"\(weights of awq in the format 'gemv'\): pip install gptqmodel"),
        (
            "pack-quantized",
            {"config_groups": {"g": {"format": "marlin-24", "weights": MARLIN}}},
            r"in the format 'marlin-24'\): pip install compressed-tensors",
        ),
        ("pack-quantized", {"kv_cache_scheme": {"num_bits": 8}}, "kv_cache_scheme of compressed-tensors"),
    ],
)
def test_other_schemes_say_what_they_need(tmp_path: Path, form: str, keys: dict[str, Any], told: str) -> None:
    write(tmp_path / "model", Integers(form, group=64))
    file = tmp_path / "model" / "config.json"
    described = json.loads(file.read_text())
    described["quantization_config"] |= keys
    file.write_text(json.dumps(described))
    with pytest.raises(ModelError, match=told):
        served(tmp_path / "model")
