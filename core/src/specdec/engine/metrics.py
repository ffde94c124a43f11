"""Metrics over the engine's lifetime."""

from __future__ import annotations

from dataclasses import dataclass, field

from specdec.engine.latency_histogram import BOUNDS_S, LatencyHistogram
from specdec.engine.sequence import count_accepted
from specdec.interfaces.observer import StepStats

_PREFIX = "vllm:spec_decode_"


@dataclass(frozen=True)
class Counter:
    """One number that only increases."""

    name: str
    value: int | float


@dataclass(frozen=True)
class Gauge:
    """One number that increases and decreases."""

    name: str
    value: int | float


@dataclass(frozen=True)
class Vector:
    """One number per draft position."""

    name: str
    values: list[int]


@dataclass(frozen=True)
class Histogram:
    """Counts of times, in seconds, in buckets with upper bounds."""

    name: str
    bounds: tuple[float, ...]
    counts: list[int]
    """Per bucket, one more than there are bounds; not cumulative."""
    total: float
    """Sum of the times."""


Metric = Counter | Gauge | Vector | Histogram


@dataclass
class EngineMetrics:
    """Counters of the engine. Names are exported as vLLM's where it has them, else with `specdec:`."""

    num_steps: int = 0
    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_emitted_tokens: int = 0
    num_preemptions: int = 0
    accepted_per_position: list[int] = field(default_factory=list)
    proposer_errors: int = 0
    proposer_nodes_cut: int = 0
    proposer_overruns: int = 0
    proposer_pauses: int = 0
    prefix_tokens_rerun: int = 0
    """Tokens of cached prefixes that the target computed again because the proposer did not hold them."""
    requests_without_states: int = 0
    """Requests that get no further drafts because their states are gone."""
    steps_without_drafts: int = 0
    """Steps in which `adaptive` allowed no draft."""
    steps_with_shorter_drafts: int = 0
    """Steps in which it allowed fewer than k nodes."""
    observer_errors: int = 0
    schedule_s: float = 0.0
    propose_s: float = 0.0
    score_s: float = 0.0
    verify_s: float = 0.0
    commit_s: float = 0.0
    inter_token_latency: LatencyHistogram = field(default_factory=LatencyHistogram)
    """Times between two steps that added tokens to the same sample."""

    def count_step(self, stats: StepStats) -> None:
        """Add one step."""
        self.num_steps += 1
        self.num_drafts += stats.num_drafts
        self.num_draft_tokens += stats.num_draft_tokens
        self.num_accepted_tokens += stats.num_accepted_tokens
        self.num_emitted_tokens += stats.num_emitted_tokens
        self.schedule_s += stats.schedule_ms / 1e3
        self.propose_s += stats.propose_ms / 1e3
        self.score_s += stats.score_ms / 1e3
        self.verify_s += stats.verify_ms / 1e3
        self.commit_s += stats.commit_ms / 1e3

    def count_positions(self, num_drafted: int, num_accepted: int) -> None:
        """Add one verified draft to the counts by position."""
        count_accepted(self.accepted_per_position, num_drafted, num_accepted)

    def snapshot(self) -> list[Metric]:
        """Return all metrics."""
        return [
            Counter(_PREFIX + "num_drafts", self.num_drafts),
            Counter(_PREFIX + "num_draft_tokens", self.num_draft_tokens),
            Counter(_PREFIX + "num_accepted_tokens", self.num_accepted_tokens),
            Vector(_PREFIX + "num_accepted_tokens_per_pos", list(self.accepted_per_position)),
            Counter("specdec:num_steps", self.num_steps),
            Counter("specdec:num_emitted_tokens", self.num_emitted_tokens),
            Counter("specdec:num_preemptions", self.num_preemptions),
            Counter("vllm:num_preemptions", self.num_preemptions),
            Counter("specdec:schedule_seconds", self.schedule_s),
            Counter("specdec:propose_seconds", self.propose_s),
            Counter("specdec:score_seconds", self.score_s),
            Counter("specdec:verify_seconds", self.verify_s),
            Counter("specdec:commit_seconds", self.commit_s),
            Histogram(
                "vllm:inter_token_latency_seconds",
                BOUNDS_S,
                list(self.inter_token_latency.counts),
                self.inter_token_latency.total,
            ),
            Counter("specdec:proposer_errors", self.proposer_errors),
            Counter("specdec:proposer_nodes_cut", self.proposer_nodes_cut),
            Counter("specdec:proposer_overruns", self.proposer_overruns),
            Counter("specdec:proposer_pauses", self.proposer_pauses),
            Counter("specdec:prefix_tokens_rerun", self.prefix_tokens_rerun),
            Counter("specdec:requests_without_states", self.requests_without_states),
            Counter("specdec:steps_without_drafts", self.steps_without_drafts),
            Counter("specdec:steps_with_shorter_drafts", self.steps_with_shorter_drafts),
            Counter("specdec:observer_errors", self.observer_errors),
        ]
