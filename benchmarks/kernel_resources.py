"""Registers, spilled bytes and shared memory of every Triton kernel that serving launches, by GPU; needs no GPU.

    python benchmarks/kernel_resources.py

Models with one layer of a published model's sizes are served on the pretend device of the tests; each kernel is compiled as it
was launched. Registers and spilled bytes are of a thread, shared memory is of a block.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import transformers as hf
from common.process import BENCHMARKS
from common.provenance import provenance
from common.results import RESULTS

from specdec import LLM, SamplingParams

sys.path.insert(0, str(BENCHMARKS.parent / "tests/support"))
from pretend import PretendDevice  # type: ignore[import-not-found]  # of the tests
from pretend.launched import (  # type: ignore[import-not-found]
    ARCHITECTURES,
    Launch,
    Resources,
    launched,
)

SIZES: dict[str, Any] = {
    "num_hidden_layers": 1,
    "vocab_size": 8192,
    "max_position_embeddings": 8192,
} | dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
MODELS = {
    "llama": hf.LlamaConfig(hidden_size=4096, intermediate_size=2048, num_attention_heads=32, num_key_value_heads=8, **SIZES),
    "qwen3": hf.Qwen3Config(
        hidden_size=2048, intermediate_size=2048, num_attention_heads=16, num_key_value_heads=8, head_dim=128, **SIZES
    ),
    "gemma3": hf.Gemma3TextConfig(
        hidden_size=2560, intermediate_size=2048, num_attention_heads=8, num_key_value_heads=4, head_dim=256, **SIZES
    ),
}  # fmt: skip
SERVED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("llama", {}),
    (
        "llama",
        {"speculative_config": {"method": "recycling", "num_speculative_tokens": 8, "adaptive": False}},
    ),
    (
        "llama",
        {"speculative_config": {"method": "ngram_gpu", "num_speculative_tokens": 4, "adaptive": False}},
    ),
    ("llama", {"deterministic": True}),
    ("qwen3", {}),
    ("gemma3", {}),
)
OPTIONS: dict[str, Any] = {
    "device": "cuda:0", "max_model_len": 512, "max_num_seqs": 4, "max_num_batched_tokens": 96, "num_gpu_blocks_override": 200,
    "skip_tokenizer_init": True,
}  # fmt: skip
PARAMS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0},
    {"temperature": 0.8, "top_p": 0.9, "logprobs": 1, "repetition_penalty": 1.1, "seed": 1},
)


def serve() -> Iterator[Launch]:
    """Yield the launches of all kernels."""
    prompts = [{"prompt_token_ids": list(range(5, 5 + length))} for length in (3, 80)]
    params = [SamplingParams(max_tokens=4, ignore_eos=True, **each) for each in PARAMS]
    for name, options in SERVED:
        with tempfile.TemporaryDirectory() as folder, launched() as found:
            model = hf.AutoModelForCausalLM.from_config(MODELS[name], dtype=torch.bfloat16)
            model.save_pretrained(folder)
            with PretendDevice():
                llm = LLM(folder, **OPTIONS, **options)
                llm.generate(prompts, params, use_tqdm=False)
                llm.shutdown()
        print(f"{name} {options}: {len(found)} kernels", file=sys.stderr)
        yield from found


def table(found: dict[tuple[str, str], list[Resources]]) -> list[list[object]]:
    """Return for each kernel and GPU how many were compiled, and the most of what they take."""
    return [
        [
            *key,
            len(each),
            *(max(getattr(r, n) for r in each) for n in ("registers", "stack_bytes", "shared_bytes")),
        ]
        for key, each in sorted(found.items())
    ]


def main() -> None:
    """Write `results/kernel_resources.json`."""
    found: dict[tuple[str, str], list[Resources]] = defaultdict(list)
    launches = [*serve()]
    with ThreadPoolExecutor(2) as pool:
        for capability in ARCHITECTURES:
            compiled = pool.map(lambda launch, to=capability: launch.compiled(to), launches)
            for launch, resources in zip(launches, compiled, strict=True):
                found[launch.name, f"sm_{capability}"].append(resources)
    columns = ["kernel", "gpu", "kernels", "registers", "spilled_bytes", "shared_bytes"]
    content = {"environment": provenance(), "columns": columns, "rows": table(found)}
    text = json.dumps(content, separators=(",", ":")) + "\n"
    (RESULTS / "kernel_resources.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
