"""Runs the contenders on the same prompts, interleaved, in several rounds."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any

from specdec_cli.bench.contender import Contender
from specdec_cli.bench.row import make_row, more_columns
from specdec_cli.bench.session import Session
from specdec_cli.bench.turn import Turn
from specdec_cli.bench.workload import Workload
from specdec_runtime.loading import LoadedTarget


class Comparison:
    """Runs rounds in which every contender has one turn; the order rotates from round to round.

    Args:
        target: the loaded target, shared by all.
        workload: the prompts and how text is generated for them.
        contenders: the first one is the baseline.
        on_done: called after each request, for a progress bar.
        on_failure: called with a contender whose turn raised, which then has no row; None: the error is raised.
    """

    def __init__(
        self,
        target: LoadedTarget,
        workload: Workload,
        contenders: Sequence[Contender],
        on_done: Callable[[], None] = lambda: None,
        on_failure: Callable[[Contender, Exception], None] | None = None,
    ) -> None:
        self._target = target
        self._workload = workload
        self._contenders = list(contenders)
        self.on_done = on_done
        self._on_failure = on_failure
        self.rounds: list[list[Turn]] = []
        """For each round the turns, in the order of the contenders."""

    def run_round(self) -> None:
        """Run one more turn of every contender."""
        size = len(self._contenders)
        first = len(self.rounds) % size
        order = [*range(first, size), *range(first)]
        gc.freeze()  # existing objects need not be searched for garbage after every turn
        turns = dict[int, Turn]()
        try:
            for index in order:
                try:
                    turns[index] = self._take_turn(self._contenders[index])
                except Exception as error:
                    if self._on_failure is None or index == 0:
                        raise
                    self._on_failure(self._contenders[index], error)
        finally:
            gc.unfreeze()
        kept = sorted(turns)
        self._contenders = [self._contenders[index] for index in kept]
        self.rounds = [[taken[index] for index in kept] for taken in self.rounds]
        self.rounds.append([turns[index] for index in kept])

    def rows(self) -> list[dict[str, Any]]:
        """Return one report row per contender."""
        baseline = [turns[0] for turns in self.rounds]
        return [
            make_row(
                contender,
                self._turns(index),
                baseline,
                num_prompts=len(self._workload.prompts),
                batch_size=self._workload.batch_size,
            )
            for index, contender in enumerate(self._contenders)
        ]

    def shown_rows(self) -> list[dict[str, Any]]:
        """Return the rows with the additional columns of tables and pages."""
        return [row | more_columns(row, self._turns(index)) for index, row in enumerate(self.rows())]

    def _turns(self, index: int) -> list[Turn]:
        return [turns[index] for turns in self.rounds]

    def _take_turn(self, contender: Contender) -> Turn:
        session = Session(self._target, contender, self._workload)
        session.warm_up()
        turn = session.run(self.on_done)
        session.close()
        return turn
