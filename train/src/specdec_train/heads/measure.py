"""Measures the speedup of a new head over plain decoding."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from specdec.config import target_facts
from specdec_cli.bench import Comparison, Workload, contenders_of
from specdec_runtime.loading import LoadedTarget
from specdec_train.heads.recipe import BLOCK_METHODS
from specdec_train.interruption import IsInterrupted

METHODS = {
    "draft": "draft_model",
    "eagle": "eagle",
    "eagle3": "eagle3",
    "dflash": "dflash",
    "dspark": "dflash",
    "mtp": "mtp",
    "mlp": "mlp_speculator",
}
"""Name of each kind in `speculative_config`."""
_MAX_TOKENS = 128
_NUM_PROMPTS = 8
_ROUNDS = 3
_SURE = 0.3
"""Confidence threshold: on two cores and SmolLM2 the best of 0, 0.3 and 0.45 for a head of 30 minutes."""


def configs_of(method: str, out: Path, num_steps: int) -> list[dict[str, Any]]:
    """Return the configurations to try: short and long drafts, some with a confidence threshold."""
    lengths = [num_steps] if method == "mlp" else [2, 3, 5]
    if method in BLOCK_METHODS:  # a longer draft costs it little
        lengths = sorted({min(k, num_steps) for k in (3, 5, 7)})
    configs: list[dict[str, Any]] = [
        {"method": METHODS[method], "model": str(out), "num_speculative_tokens": k} for k in lengths
    ]
    return configs + [{**config, "draft_confidence_threshold": _SURE} for config in configs[-2:]]


def measure(
    target: LoadedTarget,
    prompts: Sequence[Sequence[int]],
    configs: Sequence[dict[str, Any]],
    seconds: float,
    is_interrupted: IsInterrupted,
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return the fastest configuration and its row of a `specdec bench` report: greedy, one request at a time.

    Args:
        target: the loaded target.
        prompts: held-out prompts as token ids; some of them are used.
        configs: values of `speculative_config`.
        seconds: no further round starts if it would end later.
        is_interrupted: called between rounds; True stops the measurement.
    """
    length = min(target.max_model_len, 2048)
    short = [tuple(prompt) for prompt in prompts if len(prompt) + _MAX_TOKENS <= length]
    if not short or target.path is None:
        return None
    short = short[:: max(1, len(short) // _NUM_PROMPTS)][:_NUM_PROMPTS]
    workload = Workload(tuple(short), _MAX_TOKENS, 1, 0.0, 0)
    contenders = contenders_of(configs, target_facts(target.path))
    comparison = Comparison(replace(target, max_model_len=length), workload, contenders)
    started = time.monotonic()
    for done in range(_ROUNDS):
        if done and (time.monotonic() - started) * (done + 1) / done > seconds:
            break
        if is_interrupted():
            break
        comparison.run_round()
    if not comparison.rounds:
        return None
    rows = comparison.rows()[1:]
    best = max(range(len(rows)), key=lambda index: float(rows[index]["speedup"]))
    return configs[best], rows[best]
