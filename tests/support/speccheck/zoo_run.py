"""Compares runs on the zoo's target with `transformers` and writes down what was compared with what."""

from __future__ import annotations

import hashlib
import json
import platform
import shlex
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoTokenizer, PreTrainedModel

import specdec_zoo
from speccheck.identity import TIE_GAP, compare, references
from specdec import LLM, SamplingParams

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "tests" / "results"


def zoo_prompts(count: int) -> list[list[int]]:
    """Return token ids of held-out prompts of mixed lengths: the zoo's own."""
    tokenizer = AutoTokenizer.from_pretrained(specdec_zoo.path("target"))
    texts = [prompt["prompt"] for prompt in specdec_zoo.prompts() if prompt["prompt"].strip()]
    if len(texts) < count:
        texts = texts * (-(-count // len(texts)))
    prompts = []
    for index in range(count):
        text = texts[index * len(texts) // count]
        ids = tokenizer(text)["input_ids"]
        length = (8, 33, 64, 120, 257)[index % 5]
        prompts.append(list(ids[:length]))
    return prompts


@dataclass
class ZooRun:
    """Prompts, what `transformers` says to them, and the model for reruns in float64."""

    model: PreTrainedModel
    prompts: list[list[int]]
    expected: list[list[int]]
    max_tokens: int

    @classmethod
    def prepare(cls, model: PreTrainedModel, num_prompts: int, max_tokens: int) -> ZooRun:
        """Run `generate` of `transformers` on every prompt."""
        prompts = zoo_prompts(num_prompts)
        return cls(model, prompts, references(model, prompts, max_tokens), max_tokens)

    def run(
        self,
        name: str,
        speculation: dict[str, Any] | None,
        batch_size: int,
        *,
        enforce_eager: bool = False,
        num_prompts: int | None = None,
    ) -> dict[str, Any]:
        """Run an engine and return one row of the result."""
        prompts, expected = self.prompts[:num_prompts], self.expected[:num_prompts]
        llm = LLM(
            "zoo",
            speculative_config=speculation,
            dtype="float32",
            max_num_seqs=batch_size,
            max_model_len=512,
            enforce_eager=enforce_eager,
        )
        params = SamplingParams(temperature=0.0, max_tokens=self.max_tokens, ignore_eos=True)
        started = time.perf_counter()
        outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], params)
        wall = time.perf_counter() - started
        got = [output.outputs[0].token_ids for output in outputs]
        result = compare(self.model, prompts, expected, got)
        metrics = llm._built.engine.metrics
        return {
            "name": name,
            "speculative_config": speculation,
            "batch_size": batch_size,
            "enforce_eager": enforce_eager,
            "num_prompts": len(prompts),
            "output_tokens": sum(map(len, got)),
            "identical_prompts": len(prompts) - len(result.divergences),
            "errors": [asdict(d) for d in result.errors],
            "ties": [asdict(d) for d in result.ties],
            "num_drafts": metrics.num_drafts,
            "num_draft_tokens": metrics.num_draft_tokens,
            "num_accepted_tokens": metrics.num_accepted_tokens,
            "wall_s": round(wall, 2),
        }


def run_all(model: PreTrainedModel, num_prompts: int, max_tokens: int) -> dict[str, Any]:
    """Run no speculation and prompt lookup with k of 1, 4 and 8 at batch sizes 1, 7 and 32."""
    zoo = ZooRun.prepare(model, num_prompts, max_tokens)
    rows = []
    for batch_size in (1, 7, 32):
        rows.append(zoo.run(f"none, batch {batch_size}", None, batch_size))
        for k in (1, 4, 8):
            config = {
                "method": "ngram",
                "num_speculative_tokens": k,
                "prompt_lookup_max": 4,
                "prompt_lookup_min": 2,
            }
            rows.append(zoo.run(f"ngram k={k}, batch {batch_size}", config, batch_size))
    return {"rows": rows, "max_tokens": max_tokens, "tie_gap": TIE_GAP, "provenance": provenance()}


def provenance() -> dict[str, Any]:
    """Return what produced a result: commit, versions, processor, the model's digest."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    weights = specdec_zoo.path("target") / "model.safetensors"
    return {
        "command": shlex.join(["python", f"tests/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "commit": commit.stdout.strip(),
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "target_sha256": hashlib.sha256(weights.read_bytes()).hexdigest(),
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def write(result: dict[str, Any], path: Path) -> None:
    """Write a result as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, separators=(",", ":")) + "\n", encoding="utf-8")
