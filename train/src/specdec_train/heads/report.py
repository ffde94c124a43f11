"""The report of `specdec train`."""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import Tensor

from specdec_train.heads.data import HeadData, split_batch
from specdec_train.heads.options import TrainOptions
from specdec_train.heads.run import TrainedHead


def report_of(
    options: TrainOptions,
    trained: TrainedHead,
    config: dict[str, Any],
    measured: tuple[dict[str, Any], dict[str, Any]] | None,
) -> dict[str, Any]:
    """Return the report of a run.

    Args:
        options: the options of the command.
        trained: the trained head.
        config: the configuration to report if none was measured.
        measured: the best configuration and its row of the benchmark; None if not measured.
    """
    report: dict[str, Any] = {
        "method": options.method,
        "out": str(options.out),
        "steps": trained.state.step,
        "seconds": round(trained.state.seconds),
        "heldout_divergence": round(trained.heldout_loss, 4),
        "acceptance": [place["sampled"] for place in trained.acceptance],
        "acceptance_greedy": [place["greedy"] for place in trained.acceptance],
        "expected_length": round(1.0 + sum(place["sampled_chain"] for place in trained.acceptance), 2),
        "expected_length_greedy": round(1.0 + sum(place["greedy_chain"] for place in trained.acceptance), 2),
    }
    if measured is not None:
        config, row = measured
        report |= {
            "speedup": round(row["speedup"], 3),
            "speedup_bounds": [round(row["speedup_low"], 3), round(row["speedup_high"], 3)],
            "tokens_per_s": round(row["tokens_per_s"], 1),
            "mean_acceptance_length": round(row["mean_acceptance_length"], 3),
        }
    return report | {"speculative_config": json.dumps(config)}


def coverage(target_ids: Tensor | None, data: HeadData) -> dict[str, float]:
    """Return the share of held-out tokens in the draft vocabulary; empty if the vocabulary is not reduced."""
    if target_ids is None:
        return {}
    named, total = 0, 0
    for batch in data.heldout:
        tokens, is_answer = split_batch(batch)
        counted = tokens.flatten() if is_answer is None else tokens[is_answer]
        named += int(torch.isin(counted, target_ids.cpu()).sum())
        total += len(counted)
    return {"draft_vocab_size": len(target_ids), "draft_vocab_coverage": round(named / total, 4)}
