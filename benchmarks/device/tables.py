"""Terminal tables of a run."""

from __future__ import annotations

from collections.abc import Sequence

from device.engine_part import EngineResult
from device.goal import Goal
from device.kernel_part import KernelResult

_STEP_COLUMNS = (
    "batch", "k", "step ms", "propose", "score", "verify", "other", "bare pass", "overhead", "tok/s", "accepted + 1",
    "of bandwidth",
)  # fmt: skip
_KERNEL_COLUMNS = ("operation", "case", "backend", "ms", "torch", "torch ms", "of bandwidth", "equal")


def engine_table(result: EngineResult) -> str:
    """Return part 1 as a Markdown table."""
    rows = [
        [
            str(point.batch_size),
            str(point.k),
            f"{point.step_ms:.3f}",
            f"{point.split.propose_ms:.3f}",
            f"{point.split.score_ms:.3f}",
            f"{point.split.verify_ms:.3f}",
            f"{point.split.other_ms:.3f}",
            f"{point.forward_ms:.3f}",
            f"{point.overhead_ms:.3f}",
            f"{point.tokens_per_s:.0f}",
            f"{point.mean_acceptance_length:.2f}",
            _share(point.share_of_bandwidth),
        ]
        for point in result.points
    ]
    notes = [f"SKIPPED, out of time: batch {batch_size}, k = {k}" for batch_size, k in result.skipped]
    return "\n".join([_table(_STEP_COLUMNS, rows), *notes])


def kernel_table(result: KernelResult) -> str:
    """Return part 3 as a Markdown table."""
    rows = [
        [
            row.op,
            row.case,
            row.backend,
            f"{row.op_ms:.4f}" if row.is_equal else "",
            row.torch,
            f"{row.torch_ms:.4f}" if row.is_equal else "",
            _share(row.share_of_bandwidth) if row.is_equal else "",
            "yes" if row.is_equal else "NO",
        ]
        for row in result.rows
    ]
    notes = [f"SKIPPED, out of time: {name}" for name in result.skipped]
    notes += [f"WARNING: no case for {op}" for op in result.without_case]
    return "\n".join([_table(_KERNEL_COLUMNS, rows), *notes])


def goal_table(goals: Sequence[Goal]) -> str:
    """Return the goals as a Markdown table."""
    rows = [
        [
            goal.name,
            f"at {'most' if goal.is_upper else 'least'} {goal.limit:g}",
            "" if goal.value is None else f"{goal.value:.3g}",
            goal.where,
            goal.verdict,
        ]
        for goal in goals
    ]
    return _table(("goal", "limit", "measured", "worst at", "verdict"), rows)


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])
