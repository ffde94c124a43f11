"""Random arrivals on the pretend device: prompts come among decoding requests, every pass is recorded, texts are the CPU's."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pretend import Counts, PretendDevice
from speccheck.models import tiny

from specdec import LLM, SamplingParams
from specdec_kernels.cuda.form import GraphForm
from specdec_kernels.cuda.graphs import PassGraphs

OPTIONS = {
    "dtype": "float32", "max_model_len": 128, "max_num_seqs": 8, "max_num_batched_tokens": 160, "num_gpu_blocks_override": 200,
    "enable_prefix_caching": False, "skip_tokenizer_init": True,
}  # fmt: skip
NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1, "adaptive": False}
MOST_LAUNCHES = 10
"""For one pass: its replay and what samples its rows."""
FEW, MANY = 60, 500
"""Steps of a schedule at the default and slow level, and at the full one."""


@pytest.fixture(scope="module")
def expected() -> None:
    """Nothing: each model answers on the CPU by itself."""


def arrivals(num_steps: int) -> list[tuple[int, list[int], SamplingParams]]:
    """Return before which step requests arrive, about two in three steps, with their prompts and parameters."""
    chance = random.Random(num_steps)
    kinds: list[dict[str, Any]] = [{"temperature": 0.0}, {"temperature": 0.8, "top_p": 0.9}]
    found = []
    for step in range(num_steps):
        for _ in range(chance.choice((0, 0, 0, 1, 1, 2))):
            ids = [chance.randrange(5, 12) for _ in range(chance.choice((1, 20, 70, 90)))]
            more = {"seed": len(found), "max_tokens": chance.randint(1, 12), "ignore_eos": True}
            found.append((step, ids, SamplingParams(**chance.choice(kinds), **more)))
    return found


def serve(llm: LLM, device: PretendDevice, num_steps: int) -> tuple[list[list[int]], list[Counts]]:
    """Serve a schedule until every request has ended; returns the texts, and what each step asked of the device."""
    engine, steps, texts, names = llm._built.engine, list[Counts](), dict[str, list[int]](), list[str]()
    waiting, step = arrivals(num_steps), 0
    while engine.has_work or waiting:
        while waiting and waiting[0][0] <= step:
            _, ids, params = waiting.pop(0)
            request = llm._prepare({"prompt_token_ids": ids}, params, is_streaming=False)
            names.append(request.request_id)
            engine.add(request)
        if engine.has_work:
            device.counted()
            for output in engine.step():
                texts[output.request_id] = list(output.outputs[0].token_ids)
            steps.append(device.counted())
        step += 1
    return [texts[name] for name in names], steps


MODELS = ("llama", "qwen3", "gemma3", "qwen3_moe", "gpt_oss")
SERVED = [
    *(
        pytest.param(name, method, FEW, marks=() if name == "qwen3" and method is None else pytest.mark.slow)
        for name in MODELS
        for method in (None, NGRAM)
    ),
    *(pytest.param(name, None, MANY, marks=pytest.mark.full) for name in MODELS),
]


@pytest.mark.parametrize(("name", "method", "num_steps"), SERVED)
@pytest.mark.sampled(1, slow=4)
def test_every_pass_is_recorded(
    name: str, method: dict[str, Any] | None, num_steps: int, device: PretendDevice, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    tiny(name).save_pretrained(tmp_path)
    plain = LLM(str(tmp_path), device="cpu", **OPTIONS)
    _, prompts, params = zip(*arrivals(num_steps), strict=True)
    texts = plain.generate([{"prompt_token_ids": ids} for ids in prompts], list(params), use_tqdm=False)
    plain.shutdown()

    with_prompts = list[int]()
    results = PassGraphs._results

    def noting(graphs: PassGraphs, static: Any, num_rows: int, wanted: Any) -> Any:
        if static.batch.logits_rows is not None:
            with_prompts.append(num_rows)
        return results(graphs, static, num_rows, wanted)

    monkeypatch.setattr(PassGraphs, "_results", noting)
    llm = LLM(str(tmp_path), device="cuda:0", speculative_config=method, **OPTIONS)
    llm._built.engine._ahead._late = None  # drafts are made in time, whatever is faster here
    form = llm._built.scorer.runner.forms[0][0]
    assert isinstance(form, GraphForm)
    got, steps = serve(llm, device, num_steps)
    assert got == [list(text.outputs[0].token_ids) for text in texts]
    counts = form.counts()
    assert (counts["graph_misses"], counts["graph_failures"]) == (0, 0)
    assert counts["graph_replays"] >= num_steps
    assert max(with_prompts) > 128
    assert len(with_prompts) > num_steps // 6
    assert sum(step.recordings + step.compilations for step in steps) == 0
    most = max(steps, key=lambda step: step.launches - MOST_LAUNCHES * step.replays)
    assert most.launches <= MOST_LAUNCHES * most.replays, most.listed("launches")
    llm.shutdown()
