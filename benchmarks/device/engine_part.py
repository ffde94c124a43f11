"""Part 1: engine steps by batch size and k."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from device.bandwidth import Bandwidth
from device.budget import Budget
from device.models import Models
from device.plan import EnginePlan
from device.point import Point
from device.replay import METHOD
from device.steady import SteadyEngine
from specdec import LLM, SamplingParams

STRICT, SYNTHETIC = "strict", "synthetic"


@dataclass(frozen=True)
class EngineResult:
    """Part 1 of a result."""

    points: list[Point]
    skipped: list[tuple[int, int]]
    """Batch sizes and k that did not fit into the time budget."""

    def as_dict(self) -> dict[str, object]:
        """Return what is kept in a result."""
        return {"points": [point.as_dict() for point in self.points], "skipped": self.skipped}


def run_engine(
    models: Models, plan: EnginePlan, verification: str, bandwidth: Bandwidth | None, folder: Path
) -> EngineResult:
    """Measure every batch size with every k.

    Args:
        models: the target.
        plan: what to measure.
        verification: `strict` verifies drafts that are correct at `share_right` of the positions; `synthetic` accepts
            by rate, whatever was drafted.
        bandwidth: of the device.
        folder: for the recorded tokens.
    """
    prompts = models.prompts(max(plan.batch_sizes), plan.prompt_tokens)
    budget = Budget(plan.budget_s)
    file = folder / "recording.json"
    file.write_text(json.dumps(_record(models.target, prompts, plan.recorded_tokens)), encoding="utf-8")
    points, skipped = [], []
    for batch_size in plan.batch_sizes:
        for k in plan.k:
            if budget.is_spent:
                skipped.append((batch_size, k))
                continue
            print(f"batch {batch_size}, k = {k}", file=sys.stderr, flush=True)
            config = _config(k, plan.share_right, verification, file)
            points.append(_measure(models, plan, config, prompts[:batch_size], bandwidth))
            print(f"  {points[-1].as_dict()}", file=sys.stderr, flush=True)
    return EngineResult(points, skipped)


def _record(model: PreTrainedModel, prompts: Sequence[Sequence[int]], num_tokens: int) -> list[list[int]]:
    """Return the target's tokens after each prompt."""
    llm = LLM(
        model=model,
        max_model_len=max(map(len, prompts)) + num_tokens + 1,
        max_num_seqs=len(prompts),
        enable_prefix_caching=False,
        skip_tokenizer_init=True,
    )
    params = SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True)
    outputs = llm.generate([{"prompt_token_ids": list(prompt)} for prompt in prompts], params, use_tqdm=False)
    llm.shutdown()
    return [list(output.outputs[0].token_ids) for output in outputs]


def _config(k: int, share_right: float, verification: str, recording: Path) -> dict[str, Any] | None:
    if k == 0:
        return None
    config: dict[str, Any] = {"method": METHOD, "num_speculative_tokens": k, "recording": str(recording)}
    # `adaptive` would draft less than k, and the result would be that of another k.
    config |= {"share_right": share_right, "on_proposer_error": "raise", "adaptive": False}
    if verification == SYNTHETIC:
        rates = [share_right**place for place in range(1, k + 1)]
        config |= {"rejection_sample_method": SYNTHETIC, "synthetic_acceptance_rates": rates}
    return config


def _measure(
    models: Models,
    plan: EnginePlan,
    config: dict[str, Any] | None,
    prompts: Sequence[Sequence[int]],
    bandwidth: Bandwidth | None,
) -> Point:
    num_pairs = max(1, plan.num_steps // 2)
    engine = SteadyEngine(models.target, config, prompts, plan.num_steps + 2 * num_pairs)
    emitted_before = engine.num_emitted
    free = engine.run(plan.num_steps)
    context = sum(map(len, prompts)) / len(prompts) + (emitted_before + engine.num_emitted) / 2
    split, forward_ms = engine.profile(num_pairs)
    engine.close()
    num_bytes = models.bytes_of_pass() + len(prompts) * context * models.bytes_per_token()
    accepted = free.num_accepted_tokens / free.num_drafts if free.num_drafts else 0.0
    return Point(
        batch_size=len(prompts),
        k=config["num_speculative_tokens"] if config else 0,
        step_ms=free.step_ms,
        tokens_per_s=free.num_tokens / free.wall_s,
        mean_acceptance_length=1.0 + accepted,
        split=split,
        forward_ms=forward_ms,
        num_bytes=num_bytes,
        bound_ms=None if bandwidth is None else bandwidth.ms(num_bytes),
    )
