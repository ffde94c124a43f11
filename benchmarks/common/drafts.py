"""Draft counters of the engines. Runs in every engine's environment: standard library only."""

from __future__ import annotations

from collections.abc import Iterable

from common.protocol import Counters

_PREFIX = "vllm:spec_decode_"
_TOTALS = ("num_drafts", "num_draft_tokens", "num_accepted_tokens")
_BY_POSITION = "num_accepted_tokens_per_pos"


def draft_counters(metrics: Iterable[object]) -> Counters:
    """Return draft totals by name without the prefix, and `num_accepted_tokens_per_pos_<i>` counted from 0.

    Args:
        metrics: the result of `get_metrics()`: each has a `name`, and a `value` or, per position, `values`.
    """
    found: Counters = {}
    for metric in metrics:
        name = str(getattr(metric, "name", "")).removeprefix(_PREFIX)
        if name in _TOTALS:
            found[name] = int(getattr(metric, "value", 0))
        elif name == _BY_POSITION:
            for position, value in enumerate(getattr(metric, "values", ())):
                found[f"{name}_{position}"] = int(value)
    return found


def acceptance(counters: Counters) -> str | None:
    """Return the mean acceptance length and the share of drafts whose token at each position was accepted.

    None if the engine drafted nothing or has no counters.
    """
    drafts = counters.get("num_drafts", 0)
    if not drafts:
        return None
    length = 1 + counters.get("num_accepted_tokens", 0) / drafts
    positions = sorted(
        (int(name.rpartition("_")[2]), value)
        for name, value in counters.items()
        if name.startswith(f"{_BY_POSITION}_")
    )
    shares = " ".join(f"{value / drafts:.3f}" for _, value in positions)
    return f"{length:.3f} in {drafts} drafts" + (f"; by position {shares}" if shares else "")
