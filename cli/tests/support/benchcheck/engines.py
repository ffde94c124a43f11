"""A clock and engines whose speed is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

from specdec import RequestOutput
from specdec_cli.bench.contender import Contender
from specdec_cli.bench.session import WarmUp
from specdec_cli.bench.turn import Turn
from specdec_cli.tune.candidate import PLAIN, Candidate, Kind
from specdec_cli.tune.halving import Halving, Limits
from specdec_cli.tune.pool import Pool

PLAIN_S = 0.01
"""Seconds per token of plain decoding."""


def candidate(name: str, k: int = 4, kind: Kind = "copies", engine: str | None = None) -> Candidate:
    contender = Contender(name, name, {"method": name, "num_speculative_tokens": k})
    return Candidate(contender, k, kind, contender if engine is None else Contender(engine, engine, {}))


class Bench:
    """Engines with given speed-ups, and the clock that they move.

    Args:
        speedups: by the name of the candidate; others refuse to be made.
        making_s: seconds to make an engine.
    """

    def __init__(self, speedups: dict[str, float], making_s: float = 0.5) -> None:
        self.speedups = speedups | {PLAIN.name: 1.0}
        self.making_s = making_s
        self.now = 0.0
        self.made: list[str] = []
        self.is_open: set[str] = set()
        self.answers: list[tuple[str, tuple[int, ...], int, int | None]] = []
        self.other_texts: set[str] = set()
        self.slow_steps: set[str] = set()
        self.slow_once: set[str] = set()
        self.before_answer: Callable[[str], None] = lambda name: None

    def make(self, contender: Contender) -> FakeEngine:
        self.now += self.making_s
        if contender.name not in self.speedups:
            raise ValueError(f"{contender.name} does not work\nand more")
        self.made.append(contender.name)
        assert contender.name not in self.is_open
        self.is_open.add(contender.name)
        return FakeEngine(self, contender.name)

    def clock(self) -> float:
        return self.now

    @contextmanager
    def show(self, description: str, total: float) -> Iterator[Any]:
        yield SimpleNamespace(advance=lambda: None, expect=lambda total: None)

    def halving(
        self,
        singles: Sequence[Candidate],
        combined: Callable[[Sequence[Candidate]], list[Candidate]] = lambda ranked: [],
        *,
        num_prompts: int = 20,
        batch_size: int = 1,
        max_tokens: int = 100,
        seconds: float = 240.0,
        is_exact: bool = True,
    ) -> Halving:
        limits = Limits(num_prompts, batch_size, max_tokens, self.now + seconds, is_exact)
        pool = Pool(self.make, self.clock)
        return Halving(singles, combined, pool, limits, self.show, clock=self.clock)


class FakeEngine:
    """Answers in the time that its speed-up says; raises if it is given a prompt again, as methods may learn."""

    def __init__(self, bench: Bench, name: str) -> None:
        self._bench, self._name = bench, name
        self._prompts: set[int] = set()
        self._is_shared = False
        self.warm_up = WarmUp(0.02, *[PLAIN_S * (100 if name in bench.slow_steps else 1)] * 2)

    def answer(
        self, prompts: Sequence[int], max_tokens: int, lower: int | None, on_done: Callable[[], None]
    ) -> Turn:
        bench = self._bench
        bench.before_answer(self._name)
        assert self._prompts.isdisjoint(prompts) or lower is not None or self._is_shared, (
            "it knows the answer"
        )
        self._prompts.update(prompts)
        self._is_shared = self._is_shared or lower is not None
        bench.answers.append((self._name, tuple(prompts), max_tokens, lower))
        seconds = len(prompts) * max_tokens * PLAIN_S / bench.speedups[self._name]
        bench.now += seconds
        text = [1 if self._name in bench.other_texts else 0] * max_tokens
        outputs = [SimpleNamespace(outputs=[SimpleNamespace(token_ids=text)]) for _ in prompts]
        return Turn(seconds, tuple(cast(RequestOutput, output) for output in outputs), (), 0.0)

    def warm_again(self) -> None:
        if self._name in self._bench.slow_once:
            self.warm_up = WarmUp(0.02, PLAIN_S, PLAIN_S)

    def close(self) -> None:
        self._bench.is_open.remove(self._name)
