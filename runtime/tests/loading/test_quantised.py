"""Weights of fewer bits: what `transformers` widens on the CPU gives its text, other checkpoints say what they need."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from speccheck.engines import greedy, tokens_of
from speccheck.identity import assert_identical, references
from speccheck.models import CONFIGS, make, prompts
from torch import Tensor
from transformers import AutoModelForCausalLM

from specdec import LLM, ModelError

PROMPTS = prompts([3, 41, 1, 23], seed=3)
MAX_TOKENS = 12


def fp8(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Write projections as DeepSeek-V3's files have them: float8 with a scale for each block of 128 x 128."""
    out = {}
    for name, weight in tensors.items():
        out[name] = weight
        if name.endswith("proj.weight"):
            scale = weight.abs().amax().reshape(1, 1) / 448
            out |= {name: (weight / scale).to(torch.float8_e4m3fn), f"{name}_scale_inv": scale}
        else:
            out[name] = weight.bfloat16()  # as published
    return out


def mxfp4(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Write experts as gpt-oss's files have them: two numbers in a byte, an exponent for each 32, here random ones."""
    generator = torch.Generator().manual_seed(0)
    out = {}
    for name, weight in tensors.items():
        if not name.endswith(("gate_up_proj", "down_proj")):
            out[name] = weight
            continue
        experts, inputs, outputs = weight.shape
        size = (experts, outputs, inputs // 32)
        out[f"{name}_blocks"] = torch.randint(0, 256, (*size, 16), generator=generator, dtype=torch.uint8)
        out[f"{name}_scales"] = torch.randint(123, 126, size, generator=generator, dtype=torch.uint8)
    return out


BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
EXPERTS = {
    "quant_method": "mxfp4",
    "modules_to_not_convert": ["self_attn", "router", "embed_tokens", "lm_head"],
}
WIDENED: dict[str, tuple[str, dict[str, Any], Callable[[dict[str, Tensor]], dict[str, Tensor]]]] = {
    "fp8": ("qwen3", BLOCKS, fp8),
    "mxfp4": ("gpt_oss", EXPERTS, mxfp4),
}


def folder_of(
    folder: Path, name: str, held: dict[str, Any], write: Callable[[dict[str, Tensor]], dict[str, Tensor]]
) -> Path:
    """Write a tiny model with a `quantization_config`."""
    config = CONFIGS[name]()
    config.intermediate_size = 64
    make(config, seed=5).save_pretrained(folder)
    file, described = folder / "model.safetensors", json.loads((folder / "config.json").read_text())
    save_file(write(load_file(file)), file, metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(described | {"quantization_config": held}))
    return folder


@pytest.mark.parametrize("case", WIDENED)
def test_weights_that_transformers_widens_give_its_text(tmp_path: Path, case: str, caplog) -> None:
    folder = folder_of(tmp_path, *WIDENED[case])
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    model = model.float()  # transformers 5.23 leaves what the file has in bfloat16 as it is
    expected = references(model, PROMPTS, MAX_TOKENS)
    assert len({tuple(tokens) for tokens in expected}) == len(PROMPTS)
    ngram = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1}
    for speculation in (None, ngram):
        llm = LLM(
            model=str(folder), dtype="float32", speculative_config=speculation, max_model_len=96, skip_tokenizer_init=True
        )  # fmt: skip
        assert_identical(model, PROMPTS, expected, tokens_of(llm, PROMPTS, greedy(MAX_TOKENS)))
    assert "its weights are widened to float32" in caplog.text


@pytest.mark.parametrize(
    ("held", "told"),
    [
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True},
            "has weights of bitsandbytes .*: pip install bitsandbytes",
        ),
        (
            {"quant_method": "torchao", "quant_type": {"default": {"_type": "Int8WeightOnlyConfig"}}},
            "has weights of torchao .*: pip install torchao",
        ),
        ({"quant_method": "of tomorrow"}, "knows no weights of quant_method 'of tomorrow'"),
    ],
)
def test_others_say_what_they_need(tmp_path: Path, held: dict[str, Any], told: str) -> None:
    """None of the packages is installed here."""
    folder = folder_of(tmp_path, "llama", held, lambda tensors: tensors)
    with pytest.raises(ModelError, match=told):
        LLM(model=str(folder), max_model_len=96, skip_tokenizer_init=True)
