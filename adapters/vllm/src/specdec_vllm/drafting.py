"""The proposer of one engine of vLLM; what fails in the adapter itself costs no more than what fails in the proposer."""

from __future__ import annotations

import logging
from collections.abc import Callable

from specdec import FinishReason
from specdec.engine.metrics import Counter, Vector
from specdec.hosting import HostedProposer

logger = logging.getLogger("specdec")

Rows = list[list[int]]
"""Drafted tokens of each request of a batch, in its order."""


class Drafting:
    """A proposer, and how often the adapter failed to ask it.

    Args:
        hosted: the proposer, on the rank that drafts.
    """

    def __init__(self, hosted: HostedProposer) -> None:
        self.hosted = hosted
        self.num_failures = 0
        """Steps that drafted nothing because this adapter failed, not the proposer."""

    def rows(self, num_requests: int, draft: Callable[[], Rows]) -> Rows:
        """Return the rows that a function drafts. If it raises they are empty, and the proposer is told every request anew."""
        try:
            return draft()
        except Exception:
            if self.hosted.speculation.config.on_proposer_error == "raise":
                raise
            self.num_failures += 1
            if self.num_failures == 1:
                logger.exception(
                    "specdec-vllm failed in a step, which drafts nothing (logged once, counted in specdec:adapter_failures)"
                )
            self.hosted.finish(list(self.hosted.request_ids), FinishReason.ABORT)
            return [[] for _ in range(num_requests)]

    def counters(self) -> dict[str, int | float | list[int]]:
        """Return what was counted, by the names of `LLM.get_metrics`."""
        counted: dict[str, int | float | list[int]] = {"specdec:adapter_failures": self.num_failures}
        for metric in self.hosted.metrics():
            if isinstance(metric, Counter):
                counted[metric.name] = metric.value
            elif isinstance(metric, Vector):
                counted[metric.name] = metric.values
        return counted
