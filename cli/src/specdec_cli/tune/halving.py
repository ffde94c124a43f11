"""Successive halving: all candidates on few prompts, the faster ones on more."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import ceil
from time import perf_counter
from typing import Protocol

from specdec_cli.bench.shown import ratio_text
from specdec_cli.tune.candidate import PLAIN, Candidate
from specdec_cli.tune.pool import Pool
from specdec_cli.tune.stage import Stage

FINALISTS = 3
"""Number of candidates in the last stage, plain decoding apart."""
KEPT = 3
"""One of so many candidates goes on to the next stage."""
COMBINED = 7
"""Number of candidates that are expected to join in the second stage."""
PREPARING = 0.4
"""Share of the time that is left in which a stage may make engines."""
FEWEST_GROUPS = 3
"""Groups of prompts for which a stage makes time by shorter texts, and without which the last one does not end."""
FEWEST_TOKENS = 32
"""The shortest texts of a stage, unless shorter ones are asked for."""


class Counted(Protocol):
    """A progress bar."""

    def advance(self) -> None:
        """Count a step."""
        ...

    def expect(self, total: float) -> None:
        """Change the total number of steps."""
        ...


@dataclass(frozen=True)
class Limits:
    """How much may be measured."""

    num_prompts: int
    batch_size: int
    max_tokens: int
    ends_at: float
    """On the clock."""
    is_exact: bool
    """See `Stage`."""


class Halving:
    """Finds the fastest candidate. Every stage has an equal part of the time that is left, the last one two.

    Combinations of the best single methods join in the second stage. An engine gets a prompt once, as methods may learn:
    where prompts run out, engines are made anew. In the last stage each candidate has an engine of its own.

    Args:
        singles: the candidates of the first stage.
        combine: returns further ones, given those of the first stage, the fastest first.
        pool: makes engines.
        limits: time and prompts.
        show: shows the progress of a stage, given its description and number of steps.
        log: is told what a stage found.
        clock: for tests.
    """

    def __init__(
        self,
        singles: Sequence[Candidate],
        combine: Callable[[Sequence[Candidate]], list[Candidate]],
        pool: Pool,
        limits: Limits,
        show: Callable[[str, float], AbstractContextManager[Counted]],
        log: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self._singles, self._combine = list(singles), combine
        self._pool, self._limits = pool, limits
        self._show, self._tell, self._clock = show, log, clock
        order = list(range(limits.num_prompts))
        random.Random(0).shuffle(order)  # files are often sorted
        size = limits.batch_size
        self._groups = [order[start : start + size] for start in range(0, len(order), size)]
        if len(self._groups) > 1 and len(self._groups[-1]) < size:
            self._groups.pop()  # with a smaller batch other configurations are best
        self._next_group = 0
        self._num_left = 0
        self.stages: list[Stage] = []
        """All stages that began."""

    @property
    def last(self) -> Stage | None:
        """The last stage with a measurement."""
        return next((stage for stage in reversed(self.stages) if stage.num_groups), None)

    def run(self) -> None:
        """Run all stages."""
        candidates = self._shortened(self._run_stage(self._singles))
        candidates += self._combine(self.stages[0].ranked())
        while len(candidates) > FINALISTS:
            candidates = self._shortened(self._run_stage(candidates))
        self._pool.keep([])
        self._run_last([candidate.alone() for candidate in candidates])

    @property
    def num_stages(self) -> int:
        """Number of stages, those to come included as far as it is known."""
        return len(self.stages) + self._num_left

    def _run_stage(self, candidates: Sequence[Candidate]) -> Stage:
        num_left = _num_stages(len(candidates), is_first=not self.stages)
        stage = self._begin(candidates, num_left)
        if self._next_group >= len(self._groups):
            self._pool.keep([])
            self._next_group = 0
        most = max(1, len(self._groups) // (stage.number + num_left - 1))
        groups = self._groups[self._next_group : self._next_group + most]
        with self._show(self._title(stage), self._num_steps(stage, groups)) as steps:
            stage.on_done = steps.advance
            stage.prepare(self._pool, self._clock() + PREPARING * self._seconds_left)
            deadline = self._clock() + self._seconds_left / (num_left + 1)
            stage.max_tokens = self._tokens(stage, len(groups), deadline)
            stage.run(self._pool, groups, deadline)
        self._next_group += stage.num_groups
        self._tell_result(stage)
        return stage

    def _run_last(self, candidates: Sequence[Candidate]) -> None:
        stage = self._begin(candidates, 1)
        with self._show(self._title(stage), self._num_steps(stage, self._groups)) as steps:
            stage.on_done = steps.advance
            has_time, num_passes = True, 0
            while has_time:
                num_passes += 1
                steps.expect(num_passes * self._num_steps(stage, self._groups))
                self._pool.keep([])
                stage.prepare(self._pool)
                has_time = stage.run(self._pool, self._groups, self._limits.ends_at, FEWEST_GROUPS)
                if stage.num_groups >= FEWEST_GROUPS and self._seconds_left < 0:
                    break
        self._tell_result(stage)

    @property
    def _seconds_left(self) -> float:
        """Time that is left if all engines of the last stage have to be made once more."""
        needed = self._pool.longest_s * (FINALISTS + 1)
        return self._limits.ends_at - self._clock() - needed

    def _begin(self, candidates: Sequence[Candidate], num_left: int) -> Stage:
        self._num_left = num_left - 1
        stage = Stage(
            len(self.stages) + 1,
            [PLAIN, *candidates],
            self._limits.max_tokens,
            self._limits.is_exact,
            clock=self._clock,
        )
        self.stages.append(stage)
        self._pool.keep(stage.candidates)
        return stage

    def _tokens(self, stage: Stage, num_groups: int, deadline: float) -> int:
        """Return how long texts may be, so that there is time for some groups."""
        plain = self._pool.engine(stage.candidates[0]).warm_up
        groups = min(FEWEST_GROUPS, num_groups) * len(stage.candidates)
        seconds = (deadline - self._clock()) / groups - plain.prompts_s
        affordable = int(seconds / plain.step_s)
        return min(self._limits.max_tokens, max(FEWEST_TOKENS, affordable))

    def _num_steps(self, stage: Stage, groups: Sequence[Sequence[int]]) -> int:
        return len(stage.candidates) * (1 + sum(map(len, groups)))

    def _title(self, stage: Stage) -> str:
        which = f"stage {stage.number}" if self._num_left else "last stage"
        return f"{which}, {len(stage.candidates) - 1} configurations"

    def _shortened(self, stage: Stage) -> list[Candidate]:
        ranked = stage.ranked()
        return ranked[: max(FINALISTS, ceil(len(ranked) / KEPT))]

    def _tell_result(self, stage: Stage) -> None:
        for candidate in stage.ranked()[:1]:
            self._tell(
                f"{self._title(stage)}: {candidate.name} beside plain decoding: {ratio_text(stage.speedup(candidate))}"
            )


def _num_stages(num_candidates: int, *, is_first: bool) -> int:
    """Return how many stages are left, the last one included."""
    if is_first:
        return 1 + _num_stages(ceil(num_candidates / KEPT) + COMBINED, is_first=False)
    count = 1
    while num_candidates > FINALISTS:
        num_candidates = max(FINALISTS, ceil(num_candidates / KEPT))
        count += 1
    return count
