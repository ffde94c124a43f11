"""One method on one device, in this process: its texts, its speed, and what its steps ask of the device."""

from __future__ import annotations

import argparse
import json
import logging
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from common.model import resolve_model
from common.prompts import load_prompts
from common.ties import Float64Target
from torch.profiler import ProfilerActivity, profile
from transformers import AutoModelForCausalLM

from device.method_plan import CASES, CONFIGURATIONS, PLAIN, Case
from specdec import LLM, SamplingParams

_LONGEST = 200
"""Most tokens of a prompt."""
_TIE_GAP = 1e-4
"""Gap between the two best logits, in float64, below which rounding decides."""
_LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx")
_EVENTS = {
    **dict.fromkeys(_LAUNCHES, "launches"),
    "cudaGraphLaunch": "graphs",
    "cudaMemcpyAsync": "copies",
    "cudaStreamSynchronize": "syncs",
    "cudaEventSynchronize": "syncs",
    "cudaDeviceSynchronize": "syncs",
}
"""What the profiler calls the calls that are counted."""

_DRAFTS, _ACCEPTED = "vllm:spec_decode_num_drafts", "vllm:spec_decode_num_accepted_tokens"

Texts = list[list[int]]


def run_method(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run all cases of a method and compare their texts with those of plain decoding.

    Args:
        name: of the configuration, or `plain`.
        options: of the command; `options.plain` is the result of plain decoding.

    Returns:
        What is kept in a result: per case the texts and figures, the counted calls of a step, the log.
    """
    said = _listen()
    model = Path(resolve_model(options.model))
    prompts = load_prompts(None, model, options.num_prompts, _LONGEST)
    expected = {} if name == PLAIN else json.loads(options.plain.read_text())["cases"]
    config: Any = None if name == PLAIN else CONFIGURATIONS[options.model][name]
    started = time.perf_counter()
    llm = LLM(
        str(model), speculative_config=config,
        device=options.device, dtype=options.dtype, gpu_memory_utilization=options.memory, seed=0,
        max_model_len=1024, max_num_seqs=8, enable_prefix_caching=False, deterministic=options.deterministic,
    )  # fmt: skip
    load_s = time.perf_counter() - started
    cases: dict[str, Any] = {}
    for key, case in CASES.items():
        generated = _generate(llm, prompts, case, options.max_tokens)
        is_exact = case.params["temperature"] == 0 or _is_strict(options.model, name)
        reference = expected[key]["texts"] if expected and is_exact else None
        if name == PLAIN and key == "greedy alone" and options.dtype == "float32":
            reference = _transformers(model, prompts, options)
        cases[key] = {**generated, **_compared(generated["texts"], reference, prompts, case, model)}
    step = _counted(llm, prompts[:1], options.device)
    return {"method": name, "load_s": load_s, "cases": cases, "step": step, "said": said}


def _is_strict(model: str, name: str) -> bool:
    """Whether drawn texts are those of plain decoding with the same seed; other samplers keep their distribution alone."""
    method: str = CONFIGURATIONS[model].get(name, {}).get("rejection_sample_method", "strict")
    return method == "strict"


def _listen() -> list[str]:
    """Return the list that specdec's log lines go to from now on."""
    said: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(f"{record.levelname} {record.getMessage()}")

    logger = logging.getLogger("specdec")
    logger.addHandler(Keep())
    logger.setLevel(logging.INFO)
    return said


def _generate(llm: LLM, prompts: Sequence[list[int]], case: Case, max_tokens: int) -> dict[str, Any]:
    """Run a case twice, since the first run compiles and records, and return the texts and figures of the second."""
    given = [{"prompt_token_ids": prompt} for prompt in prompts]
    params = SamplingParams(**case.params, max_tokens=max_tokens, ignore_eos=True)
    size = case.batch_size
    batches = [given[start : start + size] for start in range(0, len(given), size)]
    for _ in range(2):
        before, started, texts = _counters(llm), time.perf_counter(), []
        for batch in batches:
            outputs = llm.generate(batch, params, use_tqdm=False)
            texts += [list(output.outputs[0].token_ids) for output in outputs]
        seconds = time.perf_counter() - started
    grown = {key: value - before[key] for key, value in _counters(llm).items()}
    drafts = grown[_DRAFTS]
    return {
        "texts": texts,
        "tokens_per_s": sum(map(len, texts)) / seconds,
        "mean_acceptance_length": 1.0 + (grown[_ACCEPTED] / drafts if drafts else 0.0),
    }


def _counters(llm: LLM) -> dict[str, float]:
    """Return the engine's counters of drafts."""
    values = {metric.name: getattr(metric, "value", 0) for metric in llm.get_metrics()}
    return {key: values.get(key, 0) for key in (_DRAFTS, _ACCEPTED)}


def _transformers(model: Path, prompts: Sequence[list[int]], options: argparse.Namespace) -> Texts:
    """Return the greedy texts of `generate`, one prompt at a time."""
    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).to(options.device).eval()
    texts = []
    for prompt in prompts:
        ids = torch.tensor([prompt], device=options.device)
        with torch.inference_mode():
            out = loaded.generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, eos_token_id=-1, pad_token_id=0,
                max_new_tokens=options.max_tokens,
            )  # fmt: skip
        texts.append(out[0, len(prompt) :].tolist())
    return texts


def _compared(
    texts: Texts, reference: Texts | None, prompts: Sequence[list[int]], case: Case, model: Path
) -> dict[str, Any]:
    """Return which texts differ from the reference, where, and whether rounding explains it."""
    if reference is None:
        return {"num_texts": len(texts), "num_same": None, "differences": [], "are_ties": True}
    differences, target, are_ties = [], Float64Target(model), True
    for index, (text, other) in enumerate(zip(texts, reference, strict=True)):
        if text == other:
            continue
        place = next(n for n, pair in enumerate(zip(text, other, strict=True)) if pair[0] != pair[1])
        gap = target.top2_gap([*prompts[index], *text[:place]]) if case.params["temperature"] == 0 else None
        are_ties &= gap is not None and gap < _TIE_GAP
        differences.append({"prompt": index, "token": place, "gap": gap})
    num_same = len(texts) - len(differences)
    return {
        "num_texts": len(texts),
        "num_same": num_same,
        "differences": differences,
        "are_ties": are_ties,
    }


def _counted(llm: LLM, prompts: Sequence[list[int]], device: str) -> dict[str, float]:
    """Return calls per step of a request alone, drawn at temperature 0.8."""
    if device != "cuda":
        return {}
    params = SamplingParams(temperature=0.8, top_p=0.9, seed=7, max_tokens=64, ignore_eos=True)
    given = [{"prompt_token_ids": prompt} for prompt in prompts]
    before = _counters(llm)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        llm.generate(given, params, use_tqdm=False)
        torch.cuda.synchronize()
    grown = {key: value - before[key] for key, value in _counters(llm).items()}
    num_steps = 64.0 - grown[_ACCEPTED]
    counts: Counter[str] = Counter()
    for event in profiler.key_averages():
        if event.key in _EVENTS:
            counts[_EVENTS[event.key]] += event.count
    return {"steps": num_steps, **{key: count / num_steps for key, count in sorted(counts.items())}}
