"""The results of one contender's pass over the prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specdec import RequestOutput
from specdec_cli.bench.step_time import StepTime


@dataclass(frozen=True)
class Turn:
    """One pass over prompts."""

    wall_s: float
    """Time from the first request to the last token, without the second runs of timed passes."""
    outputs: tuple[RequestOutput, ...]
    """In the order of the prompts."""
    steps: tuple[StepTime, ...]
    peak_memory_mb: float
    num_proposer_errors: int = 0
    """How often the proposer failed."""
    started: tuple[float, ...] = ()
    """When the requests of `outputs` were given to the engine, in seconds of `perf_counter`."""

    @staticmethod
    def joined(turns: Sequence[Turn]) -> Turn:
        """Merge consecutive passes of one contender into one."""
        return Turn(
            wall_s=sum(turn.wall_s for turn in turns),
            outputs=tuple(output for turn in turns for output in turn.outputs),
            steps=tuple(step for turn in turns for step in turn.steps),
            peak_memory_mb=max(turn.peak_memory_mb for turn in turns),
            num_proposer_errors=sum(turn.num_proposer_errors for turn in turns),
            started=tuple(moment for turn in turns for moment in turn.started),
        )

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
