"""The scheduler's output for one step."""

from __future__ import annotations

from dataclasses import dataclass, field

from specdec.engine.sequence import Sequence


@dataclass(slots=True)
class SchedulerOutput:
    """The running sequences of one step and how many tokens each runs. Lists are indexed by
    sequence unless they say otherwise."""

    sequences: list[Sequence]
    chunks: list[int]
    """Number of committed tokens to run: 1 in decode, a prompt chunk in prefill, 0 if the token budget is
    spent."""
    max_nodes: list[int]
    """Maximum number of drafted nodes; 0 if no draft is wanted."""
    decoding: list[int]
    """Indices of the sequences that sample in this step: those whose chunk reaches their last committed token."""
    preempted: list[Sequence]
    """Sequences that lost their cache slots in this step and wait to run again."""
    expected: dict[int, list[int]] = field(default_factory=dict)
    """The tokens that are drafted for a sequence without the proposer; see `ExpectedTokens`."""

    @property
    def num_prompt_tokens(self) -> int:
        """Number of tokens run, without the last committed token of each decoding sequence."""
        return sum(self.chunks) - len(self.decoding)

    @property
    def all_sample(self) -> bool:
        """Whether every running sequence samples in this step."""
        return len(self.decoding) == len(self.sequences)
