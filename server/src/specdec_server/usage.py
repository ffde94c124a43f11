"""Token usage and speculation metrics of requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specdec import RequestOutput
from specdec_server.settings import RequestMetrics


def usage(outputs: Sequence[RequestOutput], *, is_only_prompt: bool = False) -> dict[str, Any]:
    """Return token counts over the outputs of one request to the server.

    Args:
        outputs: the last output of every prompt.
        is_only_prompt: whether the generated tokens were discarded.
    """
    prompt = sum(len(output.prompt_token_ids) for output in outputs)
    samples = [sample for output in outputs for sample in output.outputs]
    completion = 0 if is_only_prompt else sum(len(sample.token_ids) for sample in samples)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(output.num_cached_tokens for output in outputs)},
        "completion_tokens_details": {
            "reasoning_tokens": 0 if is_only_prompt else sum(s.num_reasoning_tokens or 0 for s in samples),
        }
        | {
            f"{verdict}_prediction_tokens": sum(
                getattr(output.metrics, f"num_{verdict}_prediction_tokens") for output in outputs
            )
            for verdict in ("accepted", "rejected")
        },
    }


def request_metrics(
    outputs: Sequence[RequestOutput], wanted: RequestMetrics, *, is_speculative: bool
) -> dict[str, Any]:
    """Return the field `metrics` of a response, in vLLM's format, to merge into it; empty if there is nothing to report.

    Args:
        outputs: the last output of every prompt.
        wanted: level of detail.
        is_speculative: whether the engine drafts at all.
    """
    if wanted is RequestMetrics.NONE or not is_speculative:
        return {}
    all_metrics = [output.metrics for output in outputs]
    drafts = sum(metrics.num_drafts for metrics in all_metrics)
    drafted = sum(metrics.num_draft_tokens for metrics in all_metrics)
    accepted = sum(metrics.num_accepted_tokens for metrics in all_metrics)
    emitted = sum(metrics.num_output_tokens for metrics in all_metrics)
    steps = sum(metrics.num_steps for metrics in all_metrics)
    width = max((len(metrics.accepted_per_position) for metrics in all_metrics), default=0)
    stood = [drafts] + [
        sum(m.accepted_per_position[place] for m in all_metrics if place < len(m.accepted_per_position))
        for place in range(width)
    ]
    histogram = [a - b for a, b in zip(stood, [*stood[1:], 0], strict=True)]
    return {
        "metrics": {
            "speculative_decoding": {
                "mean_acceptance_length": 1 + accepted / drafts if drafts else 1.0,
                "tokens_per_step": emitted / steps if steps else 0.0,
                "draft_acceptance_rate": accepted / drafted if drafted else 0.0,
                "acceptance_histogram": histogram,
                "num_spec_steps": drafts,
                "num_steps": steps,
                "num_draft_tokens": drafted,
                "num_accepted_draft_tokens": accepted,
            }
        }
    }
