"""The entry point that SGLang calls in each of its processes, before it reads its arguments."""

from __future__ import annotations

from typing import Any

NAME = "SPECDEC"
"""The value of `--speculative-algorithm`."""


def register() -> None:
    """Register the algorithm; what it needs is imported when it is used."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    from specdec_sglang.algorithm import Algorithm

    SpeculativeAlgorithm.register(NAME, supports_overlap=True, spec_class=Algorithm)(_worker_class)
    HookRegistry.register(
        "sglang.srt.managers.scheduler_components.internal_state.SchedulerInternalStateController._add_speculative",
        _add_counters,
        HookType.AFTER,
    )


def _worker_class(server_args: Any) -> type:
    from specdec_sglang.worker import Worker

    return Worker


def _add_counters(result: None, controller: Any, state: dict[str, Any]) -> None:
    """Add the proposer's counters to what `/server_info` returns of a scheduler."""
    counters = getattr(controller.scheduler.draft_worker, "specdec_counters", None)
    if counters is not None:
        state["specdec"] = counters()
