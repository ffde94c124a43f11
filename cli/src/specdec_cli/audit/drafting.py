"""Counts of drafted and accepted tokens of a server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_NAMES = ("num_drafts", "num_draft_tokens", "num_accepted_tokens")


@dataclass(frozen=True)
class Drafting:
    """Counts over some requests; `num_drafts` is None if a server reports only tokens."""

    num_drafts: int | None
    num_draft_tokens: int
    num_accepted_tokens: int

    def __add__(self, other: Drafting) -> Drafting:
        return self._combined(other, 1)

    def __sub__(self, other: Drafting) -> Drafting:
        return self._combined(other, -1)

    def _combined(self, other: Drafting, sign: int) -> Drafting:
        ours, theirs = self.num_drafts, other.num_drafts
        return Drafting(
            None if ours is None or theirs is None else ours + sign * theirs,
            self.num_draft_tokens + sign * other.num_draft_tokens,
            self.num_accepted_tokens + sign * other.num_accepted_tokens,
        )

    @property
    def acceptance_rate(self) -> float | None:
        """Share of drafted tokens that were accepted; None if nothing was drafted."""
        return self.num_accepted_tokens / self.num_draft_tokens if self.num_draft_tokens else None

    @property
    def mean_acceptance_length(self) -> float | None:
        """1 + accepted tokens per draft; None if unknown."""
        return 1 + self.num_accepted_tokens / self.num_drafts if self.num_drafts else None


def read_metrics(text: str) -> Drafting | None:
    """Read the counts from Prometheus text under vLLM's names, summed over labels; None if they are missing."""
    counts = []
    for name in _NAMES:
        found = re.findall(rf"^vllm:spec_decode_{name}(?:_total)?(?:\{{.*\}})? (\S+)", text, re.MULTILINE)
        if not found:
            return None
        counts.append(int(sum(map(float, found))))
    return Drafting(*counts)


def read_reply(reply: Mapping[str, Any]) -> Drafting | None:
    """Read the counts from a response body, in vLLM's or llama.cpp's format; None if they are missing."""
    stats = (reply.get("metrics") or {}).get("speculative_decoding")
    if stats:
        return Drafting(
            stats["num_spec_steps"], stats["num_draft_tokens"], stats["num_accepted_draft_tokens"]
        )
    timings = reply.get("timings") or {}
    if "draft_n" in timings:
        return Drafting(None, timings["draft_n"], timings.get("draft_n_accepted", 0))
    return None
