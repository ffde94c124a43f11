"""Summary of a run, as one line and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specdec import RequestMetrics, RequestOutput
    from specdec.interfaces import Sampler


def as_json(output: RequestOutput, sampler: type[Sampler]) -> dict[str, Any]:
    """Return a finished output with its metrics, in the form that `--json` prints."""
    completion, metrics = output.outputs[0], output.metrics
    return {
        "prompt": output.prompt,
        "text": completion.text,
        "token_ids": completion.token_ids,
        "is_from_draft": completion.is_from_draft,
        "finish_reason": completion.finish_reason,
        "stop_reason": completion.stop_reason,
        "sampler": sampler.name,
        "is_lossless": sampler.is_lossless,
        "metrics": {
            **asdict(metrics),
            "mean_acceptance_length": metrics.mean_acceptance_length,
            "tokens_per_step": metrics.tokens_per_step,
            "acceptance_rate": metrics.acceptance_rate,
        },
    }


def summary(num_tokens: int, metrics: RequestMetrics, sampler: type[Sampler]) -> str:
    """Return tokens, time and acceptance in one line."""
    line = (
        f"{num_tokens} tokens in {metrics.total_time:.2f} s, {num_tokens / metrics.total_time:.0f} tokens/s"
    )
    if metrics.num_drafts:
        line += (
            f"; {metrics.num_accepted_tokens} of {metrics.num_draft_tokens} drafted tokens accepted, "
            f"mean acceptance length {metrics.mean_acceptance_length:.2f}, {metrics.tokens_per_step:.2f} tokens a step"
        )
    return line if sampler.is_lossless else f"{line}; {sampler.name} is lossy"
