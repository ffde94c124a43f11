"""One stage: candidates answer the same prompts, interleaved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from time import perf_counter

from specdec_cli.bench.speedup import Bounded, speedup_by_questions
from specdec_cli.bench.turn import Turn
from specdec_cli.tune.candidate import Candidate
from specdec_cli.tune.engine import Engine
from specdec_cli.tune.pool import Pool, Refused, reason_of

SLOWEST = 3.0
"""A candidate is left out whose step takes longer than plain steps for all the tokens it can bring, by this factor."""


@dataclass
class Stage:
    """Candidates, the first of them plain decoding, and what they took for each group of prompts.

    After each group the order changes, and all candidates still there have answered the same prompts.
    """

    number: int
    candidates: list[Candidate]
    max_tokens: int
    is_exact: bool
    """Whether a text that differs from plain decoding's is an error; in 16 bits rounding may make one."""
    turns: dict[str, list[Turn]] = field(default_factory=dict)
    """By the candidate's name; one for each group."""
    left_out: list[tuple[Candidate, str]] = field(default_factory=list)
    """Candidates that could not go on, and why."""
    on_done: Callable[[], None] = lambda: None
    clock: Callable[[], float] = perf_counter
    _longest_s: float = 0.0

    @property
    def num_groups(self) -> int:
        """Number of groups that all candidates have answered."""
        return len(self.turns[self.candidates[0].name]) if self.turns else 0

    def prepare(self, pool: Pool, deadline: float = inf) -> None:
        """Make the engines until the deadline, at least one; leave out candidates that have none, or cannot be faster."""
        plain = pool.engine(self.candidates[0])
        num_ready = 0
        for candidate in list(self.candidates[1:]):
            self.on_done()
            if num_ready and self.clock() > deadline and not pool.has(candidate):
                self._leave_out(candidate, "there was no time to try it: give more --minutes")
                continue
            try:
                engine = pool.engine(candidate)
            except Refused as error:
                self._leave_out(candidate, str(error))
                continue
            most = 1 + candidate.num_speculative_tokens
            if _times(engine, plain) > SLOWEST * most:  # or the machine had other work
                engine.warm_again()
                plain.warm_again()
            times = _times(engine, plain)
            if times > SLOWEST * most:
                reason = (
                    f"a step takes {times:.0f} times as long as a plain one, and brings {most} tokens at most"
                )
                self._leave_out(candidate, reason)
            else:
                num_ready += 1

    def run(
        self, pool: Pool, groups: Sequence[Sequence[int]], deadline: float, fewest_groups: int = 1
    ) -> bool:
        """Run groups of prompts until the next group would probably end after the deadline.

        Args:
            pool: the engines.
            groups: numbers of prompts.
            deadline: on the clock.
            fewest_groups: number of groups of this stage that are run in any case.

        Returns:
            whether there is time for more groups.
        """
        for group in groups:
            if self.num_groups >= fewest_groups and self.clock() + self._longest_s > deadline:
                return False
            started = self.clock()
            self._run_group(pool, group)
            self._longest_s = max(self._longest_s, self.clock() - started)
        return self.num_groups < fewest_groups or self.clock() + self._longest_s < deadline

    def speedup(self, candidate: Candidate) -> Bounded:
        """Return a candidate's speed-up over plain decoding with its bounds, by resampling the groups."""
        return speedup_by_questions([self.turns[candidate.name]], [self.turns[self.candidates[0].name]])

    def ranked(self) -> list[Candidate]:
        """Return the candidates but plain decoding, the fastest first."""
        return sorted(self.candidates[1:], key=lambda c: self.speedup(c)[0], reverse=True)

    def _run_group(self, pool: Pool, group: Sequence[int]) -> None:
        first = self.num_groups % len(self.candidates)
        turns: dict[str, Turn] = {}
        for candidate in [*self.candidates[first:], *self.candidates[:first]]:
            try:
                turn = pool.engine(candidate).answer(group, self.max_tokens, candidate.lower, self.on_done)
            except Exception as error:
                if candidate.kind == "plain":
                    raise
                pool.refuse(candidate, reason_of(error))
                self._leave_out(candidate, reason_of(error))
            else:
                turns[candidate.name] = turn
        plain = turns[self.candidates[0].name]
        for candidate in [c for c in self.candidates if c.name in turns]:
            if self.is_exact and turns[candidate.name].token_ids != plain.token_ids:
                self._leave_out(candidate, "its text is not that of plain decoding")
            else:
                self.turns.setdefault(candidate.name, []).append(turns[candidate.name])

    def _leave_out(self, candidate: Candidate, reason: str) -> None:
        self.candidates.remove(candidate)
        self.turns.pop(candidate.name, None)
        self.left_out.append((candidate, reason))


def _times(engine: Engine, plain: Engine) -> float:
    """Return how long a step takes, relative to a plain one."""
    return engine.warm_up.fastest_step_s / plain.warm_up.fastest_step_s
