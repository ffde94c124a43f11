"""Breakdown of the time of steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

from specdec.interfaces import StepStats
from specdec_cli.bench.forward_probe import ForwardProbe


@dataclass(frozen=True, slots=True)
class StepTime:
    """The times of one step, in milliseconds."""

    is_decode: bool
    """Whether the step contains no prefill."""
    propose_ms: float
    score_ms: float
    verify_ms: float
    other_ms: float
    """The remaining time from the end of the previous step to the end of this one."""
    forward_ms: float | None
    """The bare forward pass, if it was run a second time; then `score_ms` includes both runs."""
    num_requests: int = 0
    num_drafts: int = 0
    """Number of requests whose draft was verified."""
    num_emitted_tokens: int = 0


class StepLog:
    """Collects the steps of a turn.

    Args:
        probe: measures the bare forward pass.
    """

    def __init__(self, probe: ForwardProbe) -> None:
        self._probe = probe
        self._last = perf_counter()
        self.steps: list[StepTime] = []

    def add(self, stats: StepStats) -> None:
        """Record a step that has just ended."""
        now = perf_counter()
        measured = stats.propose_ms + stats.score_ms + stats.verify_ms
        self.steps.append(
            StepTime(
                is_decode=stats.num_prompt_tokens == 0,
                propose_ms=stats.propose_ms,
                score_ms=stats.score_ms,
                verify_ms=stats.verify_ms,
                other_ms=1e3 * (now - self._last) - measured,
                forward_ms=self._probe.last_ms,
                num_requests=stats.num_requests,
                num_drafts=stats.num_drafts,
                num_emitted_tokens=stats.num_emitted_tokens,
            )
        )
        self._last = now


def median_times(steps: Sequence[StepTime]) -> dict[str, float | None]:
    """Return the medians, by column of the report.

    Steps with prefill count only if there are no others. Steps whose pass ran twice count only for
    `forward_ms`, which is None if there are no such steps.
    """
    steps = [step for step in steps if step.is_decode] or steps
    once = [step for step in steps if step.forward_ms is None] or steps
    forwards = [step.forward_ms for step in steps if step.forward_ms is not None]
    return {
        "propose_ms": median(step.propose_ms for step in once),
        "score_ms": median(step.score_ms for step in once),
        "verify_ms": median(step.verify_ms for step in once),
        "other_ms": median(step.other_ms for step in once),
        "forward_ms": median(forwards) if forwards else None,
    }


def drafted_share(steps: Sequence[StepTime]) -> float:
    """Return the share of a request's steps in which a draft was verified; steps with prefill do not count."""
    num_requests = sum(step.num_requests for step in steps if step.is_decode)
    num_drafts = sum(step.num_drafts for step in steps if step.is_decode)
    return num_drafts / num_requests if num_requests else 0.0


def tokens_per_step(steps: Sequence[StepTime]) -> float:
    """Return the mean tokens per step and request, with or without a draft; steps with prefill do not count."""
    num_requests = sum(step.num_requests for step in steps if step.is_decode)
    num_tokens = sum(step.num_emitted_tokens for step in steps if step.is_decode)
    return num_tokens / num_requests if num_requests else 1.0
