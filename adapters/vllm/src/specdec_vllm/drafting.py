"""The proposer of one vLLM engine; a failure in the adapter costs no more than a failure in the proposer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from specdec import FinishReason
from specdec.metrics import Counter, Vector
from specdec_hosting import HostedProposer

logger = logging.getLogger("specdec")

T = TypeVar("T")
Rows = list[list[int]]
"""Drafted tokens of each request of a batch, in batch order."""


class Drafting:
    """A proposer, with a counter of adapter failures.

    Args:
        hosted: the proposer, on the rank that drafts.
    """

    def __init__(self, hosted: HostedProposer) -> None:
        self.hosted = hosted
        self.num_failures = 0
        """Number of steps without drafts because the adapter, not the proposer, failed."""

    def attempt(self, do: Callable[[], T]) -> T | None:
        """Return what `do` returns. If it raises, return None; all requests are then forgotten."""
        try:
            return do()
        except Exception:
            if self.hosted.resolved.config.on_proposer_error == "raise":
                raise
            self.num_failures += 1
            if self.num_failures == 1:
                logger.exception(
                    "specdec-vllm failed in a step, which drafts nothing (logged once, counted in specdec:adapter_failures)"
                )
            self.hosted.finish(list(self.hosted.request_ids), FinishReason.ABORT)
            return None

    def counters(self) -> dict[str, int | float | list[int]]:
        """Return the counters by the names of `LLM.get_metrics`."""
        counted: dict[str, int | float | list[int]] = {"specdec:adapter_failures": self.num_failures}
        for metric in self.hosted.metrics():
            if isinstance(metric, Counter):
                counted[metric.name] = metric.value
            elif isinstance(metric, Vector):
                counted[metric.name] = metric.values
        return counted
