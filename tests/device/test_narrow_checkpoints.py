"""Checkpoints of few bits on the pretend device: those that are widened run in recorded passes, others name their packages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from speccheck.engines import greedy, tokens_of
from speccheck.identity import references
from speccheck.models import prompts
from tiny_integers import Integers, write, write_fp8

from specdec import LLM, ModelError

PROMPTS = prompts([3, 41, 1, 23], seed=3)
MAX_TOKENS = 12
KINDS = {
    "gptq": Integers("gptq", group=64),
    "awq": Integers("gemm"),
    "compressed-tensors": Integers("pack-quantized", is_symmetric=True),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    return {name: tmp_path_factory.mktemp(name) for name in (*KINDS, "fp8")}


@pytest.fixture(scope="module")
def expected(folders) -> dict[str, list[list[int]]]:
    """Tokens of the widened models on the CPU."""
    wide = {name: write(folders[name], how) for name, how in KINDS.items()}
    wide["fp8"] = write_fp8(folders["fp8"])
    return {name: references(model, PROMPTS, MAX_TOKENS) for name, model in wide.items()}


def served(folder: Path, **options: Any) -> LLM:
    sizes = {
        "max_model_len": 96,
        "max_num_seqs": 8,
        "num_gpu_blocks_override": 64,
        "max_num_batched_tokens": 128,
    }
    return LLM(str(folder), device="cuda:0", dtype="float32", skip_tokenizer_init=True, **sizes, **options)


@pytest.mark.parametrize(
    ("name", "weights"),
    [("gptq", "widen"), ("awq", "widen"), ("compressed-tensors", "published"), ("fp8", "widen")],
)
def test_what_is_widened_runs_in_recorded_passes(folders, expected, device, name, weights) -> None:
    llm = served(folders[name], weights=weights)
    model = llm._parts.scorer.target.model
    assert {parameter.device for parameter in model.parameters()} == {torch.device("cuda", 0)}
    assert type(llm._parts.scorer.runner.forms[0][0]).__name__ == "GraphForm"
    device.counted()
    assert tokens_of(llm, PROMPTS, greedy(MAX_TOKENS)) == expected[name]
    assert device.counted().replays >= MAX_TOKENS - 1
    llm.shutdown()


@pytest.mark.parametrize(
    ("name", "packages"), [("gptq", "gptqmodel optimum"), ("awq", "gptqmodel"), ("fp8", "kernels")]
)
def test_others_name_their_packages(folders, expected, device, name, packages) -> None:
    with pytest.raises(
        ModelError, match=f"has weights of {name}: pip install {packages}, or give LLM weights='widen'"
    ):
        served(folders[name])
