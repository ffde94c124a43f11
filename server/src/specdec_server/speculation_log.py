"""Periodic log lines about speculation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

from specdec.metrics import Counter, Metric, Vector

logger = logging.getLogger("specdec")

_PREFIX = "vllm:spec_decode_"


@dataclass(frozen=True)
class _Counts:
    """Counters at one point in time."""

    drafts: int = 0
    drafted: int = 0
    accepted: int = 0
    by_position: tuple[int, ...] = ()

    @classmethod
    def of(cls, metrics: Sequence[Metric]) -> _Counts:
        found = {m.name.removeprefix(_PREFIX): m for m in metrics}
        single = {name: int(m.value) for name, m in found.items() if isinstance(m, Counter)}
        positions = found.get("num_accepted_tokens_per_pos")
        return cls(
            single["num_drafts"],
            single["num_draft_tokens"],
            single["num_accepted_tokens"],
            tuple(positions.values) if isinstance(positions, Vector) else (),
        )


def describe(before: _Counts, now: _Counts, seconds: float) -> str | None:
    """Return the log line for the interval between two counts; None if nothing was drafted."""
    drafts, drafted = now.drafts - before.drafts, now.drafted - before.drafted
    if not drafts:
        return None
    accepted = now.accepted - before.accepted
    earlier = before.by_position + (0,) * (len(now.by_position) - len(before.by_position))
    rates = [(b - a) / drafts for a, b in zip(earlier, now.by_position, strict=True)]
    return (
        f"SpecDecoding metrics: Mean acceptance length: {1 + accepted / drafts:.2f}, "
        f"Accepted throughput: {accepted / seconds:.2f} tokens/s, Drafted throughput: {drafted / seconds:.2f} tokens/s, "
        f"Accepted: {accepted} tokens, Drafted: {drafted} tokens, "
        f"Per-position acceptance rate: {', '.join(f'{rate:.3f}' for rate in rates)}, "
        f"Avg Draft acceptance rate: {100 * accepted / max(drafted, 1):.1f}%"
    )


async def log_speculation(read: Callable[[], Sequence[Metric]], every_s: float) -> None:
    """Log a line every `every_s` seconds if something was drafted, until cancelled."""
    before, then = _Counts.of(read()), perf_counter()
    while True:
        await asyncio.sleep(every_s)
        counts, now = _Counts.of(read()), perf_counter()
        line = describe(before, counts, now - then)
        if line is not None:
            logger.info(line)
        before, then = counts, now
