"""Metrics over the engine's lifetime."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from specdec.metrics import BOUNDS_S, Counter, Histogram, Metric, PerProposer, Vector

if TYPE_CHECKING:
    from specdec.engine.step import Step

_PREFIX = "vllm:spec_decode_"
_OF_DRAFTS = ("num_drafts", "num_draft_tokens", "num_accepted_tokens")
_PARTS = ("schedule", "propose", "score", "verify", "commit")
_OWN = (
    *(
        "num_steps",
        "num_sample_steps",
        "num_emitted_tokens",
        "num_preemptions",
        "observer_errors",
        "prefix_tokens_rerun",
    ),
    *("proposer_errors", "proposer_nodes_cut", "proposer_overruns", "proposer_pauses"),
    *("requests_left_out", "requests_returned", "tokens_rerun", "tokens_without_drafts"),
    *("steps_without_drafts", "steps_with_shorter_drafts"),
)
"""Fields of `EngineMetrics` that are exported as they are."""
_MOST_PROPOSERS = 32  # names that a proposer gives are counted apart up to this number


class DraftCounts:
    """Numbers of verified drafts, of their tokens and of those accepted."""

    def __init__(self) -> None:
        self.num_drafts = self.num_draft_tokens = self.num_accepted_tokens = 0
        self.accepted_per_position: list[int] = []

    def count(self, num_drafted: int, num_accepted: int) -> None:
        """Add one verified draft."""
        self.num_drafts += 1
        self.num_draft_tokens += num_drafted
        self.num_accepted_tokens += num_accepted
        positions = self.accepted_per_position
        positions += [0] * (num_drafted - len(positions))
        for position in range(num_accepted):
            positions[position] += 1


class EngineMetrics(DraftCounts):
    """Counters of the engine. Names are exported as vLLM's where it has them, else with `specdec:`."""

    def __init__(self) -> None:
        super().__init__()
        self.num_steps = self.num_sample_steps = self.num_emitted_tokens = self.num_preemptions = (
            self.observer_errors
        ) = 0
        self.by_proposer: defaultdict[str, DraftCounts] = defaultdict(DraftCounts)
        self.proposer_errors = self.proposer_nodes_cut = self.proposer_overruns = self.proposer_pauses = 0
        self.prefix_tokens_rerun = 0
        """Tokens of cached prefixes that the target computed again because the proposer did not hold them."""
        self.requests_left_out = self.requests_returned = 0
        """How often a request was left out by the proposer, or its states were lost, and how often one came back."""
        self.tokens_rerun = 0
        """Tokens of requests that came back, which the target computed again."""
        self.tokens_without_drafts = 0
        """Tokens emitted while the proposer was paused, suspended, or left the request out."""
        self.steps_without_drafts = 0
        """Steps in which `adaptive` allowed no draft."""
        self.steps_with_shorter_drafts = 0
        """Steps in which it allowed fewer than k nodes."""
        self.seconds = dict.fromkeys(_PARTS, 0.0)
        self.inter_token_latency = Histogram("vllm:inter_token_latency_seconds")
        """Times between two steps that added tokens to the same sample."""

    def count_step(self, step: Step) -> None:
        """Add one step, and its drafts."""
        self.num_steps += 1
        step.num_prompt_tokens = sum(row.chunk - (row.is_sampled and row.chunk > 0) for row in step.rows)
        for row in step.sampled:
            self.num_sample_steps += len(row.emitted) > 0
            self.num_emitted_tokens += len(row.emitted)
            if row.num_nodes and row.chunk:
                step.num_drafted += row.num_nodes
                self.count_draft(row.proposer, row.num_nodes, len(row.accepted))
        for part in _PARTS:
            self.seconds[part] += getattr(step, f"{part}_s")

    def count_draft(self, proposer: str, num_drafted: int, num_accepted: int) -> None:
        """Add one draft, if it has tokens, to the counts of all and of its proposer."""
        if num_drafted:
            self.count(num_drafted, num_accepted)
            is_named = proposer in self.by_proposer or len(self.by_proposer) < _MOST_PROPOSERS
            self.by_proposer[proposer if is_named else "others"].count(num_drafted, num_accepted)

    def count_time_between_tokens(self, seconds: float) -> None:
        """Add a time between two steps that added tokens to the same sample."""
        self.inter_token_latency.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.inter_token_latency.total += seconds

    def snapshot(self) -> list[Metric]:
        """Return all metrics."""
        counts = list(self.by_proposer.items())  # at once, as a step may add one meanwhile
        return [
            *(Counter(_PREFIX + name, getattr(self, name)) for name in _OF_DRAFTS),
            Vector(_PREFIX + "num_accepted_tokens_per_pos", list(self.accepted_per_position)),
            *(
                PerProposer(f"specdec:proposer_{name[4:]}", {p: getattr(c, name) for p, c in counts})
                for name in _OF_DRAFTS
            ),
            *(Counter(f"specdec:{name}", getattr(self, name)) for name in _OWN),
            Counter("vllm:num_preemptions", self.num_preemptions),
            *(Counter(f"specdec:{part}_seconds", seconds) for part, seconds in self.seconds.items()),
            replace(self.inter_token_latency, counts=list(self.inter_token_latency.counts)),
        ]
