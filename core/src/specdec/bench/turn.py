"""What one contender did in one round."""

from __future__ import annotations

from dataclasses import dataclass

from specdec.bench.step_time import StepTime
from specdec.outputs import RequestOutput


@dataclass(frozen=True)
class Turn:
    """One pass over the workload's prompts."""

    wall_s: float
    """From the first request to the last token, without the passes that ran a second time to be timed."""
    outputs: tuple[RequestOutput, ...]
    """In the order of the prompts."""
    steps: tuple[StepTime, ...]
    peak_memory_mb: float

    @property
    def token_ids(self) -> list[list[int]]:
        """Generated tokens, by prompt."""
        return [output.outputs[0].token_ids for output in self.outputs]

    @property
    def num_tokens(self) -> int:
        """Number of generated tokens."""
        return sum(map(len, self.token_ids))

    @property
    def seconds_per_token(self) -> float:
        """Wall time over generated tokens."""
        return self.wall_s / self.num_tokens
