"""Steps of vLLM's V2 model runner whose tokens the proposer does not know yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from specdec_vllm.requests import Request


@dataclass(frozen=True)
class LateDraft:
    """A draft from text that was some steps old."""

    num_tokens: int
    """Number of tokens that it follows."""
    token_ids: tuple[int, ...]


@dataclass
class UnreadStep:
    """One step that emits tokens."""

    requests: dict[str, Request]
    """Those that it runs, by id."""
    num_drafted: dict[str, int]
    """Number of drafted tokens that vLLM verifies of each."""
    late: dict[str, LateDraft] = field(default_factory=dict)
    """Drafts that it verifies what is left of."""
    output: Any = None
    """vLLM's `AsyncOutput`; None until the step was launched."""

    def wait(self) -> None:
        """Wait for vLLM's copy of the tokens, which it has waited for itself."""
        self.output.copy_event.synchronize()

    @property
    def is_read(self) -> bool:
        """Whether the copy is there."""
        is_there = getattr(self.output.copy_event, "query", None)  # vLLM's stand-in for CPUs has none
        return is_there is None or bool(is_there())

    def tokens(self, name: str) -> list[int]:
        """Return the tokens that were emitted for a request."""
        row = self.output.model_runner_output.req_id_to_index[name]
        ids = self.output.sampled_token_ids[row, : self.output.num_sampled_tokens_np[row]]
        return [int(token) for token in ids]


class UnreadSteps:
    """The last steps, in order.

    With asynchronous scheduling vLLM launches step N + 2 once it has the tokens of step N, so that those of N + 1 are not
    known: what is known is a matter of counting, and the same on every rank.

    Args:
        num_behind: number of launched steps whose tokens vLLM may not have when it launches another one.
    """

    def __init__(self, num_behind: int) -> None:
        self.num_behind = num_behind
        self._steps = deque[UnreadStep]()

    def add(self, step: UnreadStep) -> None:
        """Add a step that was launched."""
        self._steps.append(step)

    def known(self) -> Iterator[UnreadStep]:
        """Take out the steps whose tokens vLLM has."""
        while len(self._steps) > self.num_behind:
            step = self._steps.popleft()
            step.wait()
            yield step

    def read(self) -> Iterator[UnreadStep]:
        """Return the others whose tokens happen to be on the host."""
        for step in self._steps:
            if not step.is_read:
                return
            yield step

    def most(self, name: str) -> int:
        """Return the most tokens of a request that are not known."""
        return sum(1 + step.num_drafted.get(name, 0) for step in self._steps if name in step.requests)
