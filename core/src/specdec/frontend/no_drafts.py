"""Messages for runs in which nothing was drafted."""

from __future__ import annotations

from collections.abc import Sequence

from specdec.metrics import Counter, Gauge, Metric
from specdec.registry import known_method


def no_drafts_message(name: str, method: str | None, num_errors: int = 0, num_cut: int = 0) -> str:
    """Return the message for a configuration that drafted nothing, with a likely cause and remedy.

    Args:
        name: the name of the configuration.
        method: its method.
        num_errors: how often its proposer failed.
        num_cut: how many nodes were cut because they cannot be scored.
    """
    if num_errors:
        return f"{name} drafted nothing in any step: its proposer failed {num_errors} times"
    if num_cut:
        return f"{name} drafted nothing in any step that can be scored: {num_cut} nodes were cut"
    known = known_method(method or "")
    hint = known.no_drafts_hint if known is not None else None
    why = hint or "the method found nothing to guess in these texts, or its configuration turns it off"
    return f"{name} drafted nothing in any step: {why}"


def no_drafts_warning(method: str | None, metrics: Sequence[Metric]) -> str | None:
    """Return a warning if an engine has drafted nothing; None if it has, or if there was nothing to draft for.

    Args:
        method: the engine's method; None without speculation.
        metrics: the engine's metrics.
    """
    counts = {metric.name: int(metric.value) for metric in metrics if isinstance(metric, Counter | Gauge)}
    num_tokens, num_steps = counts["specdec:num_emitted_tokens"], counts["specdec:num_steps"]
    if method is None or counts["vllm:spec_decode_num_drafts"] or min(num_tokens, num_steps) < 2:
        return None
    return no_drafts_message(
        method, method, counts["specdec:proposer_errors"], counts["specdec:proposer_nodes_cut"]
    )
