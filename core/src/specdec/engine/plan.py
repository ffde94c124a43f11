"""What one step runs."""

from __future__ import annotations

from dataclasses import dataclass

from specdec.engine.sequence import Sequence


@dataclass(slots=True)
class Plan:
    """The running sequences of one step and how many tokens each runs. All lists have one entry per sequence."""

    sequences: list[Sequence]
    chunks: list[int]
    """Committed tokens to run: 1 while decoding, a piece of the prompt before, 0 if the token budget is spent."""
    max_nodes: list[int]
    """The most drafted nodes; 0 where no draft is wanted."""
    decoding: list[int]
    """Indices of the sequences that sample in this step: those whose chunk reaches their last committed token."""
    preempted: list[Sequence]
    """Sequences that lost their cache in this step and wait to be run again."""

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens run that are not the last committed one of a decoding sequence."""
        return sum(self.chunks) - len(self.decoding)

    @property
    def all_sample(self) -> bool:
        """Whether every running sequence samples in this step."""
        return len(self.decoding) == len(self.sequences)
