"""Runs the contenders on the questions of a suite, interleaved."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any

from specdec_cli.bench.contender import Contender
from specdec_cli.bench.row import make_row, more_columns
from specdec_cli.bench.session import Session
from specdec_cli.bench.speedup import MIN_ROUNDS, speedup_by_questions, speedup_by_rounds
from specdec_cli.bench.suites.chat import Chat
from specdec_cli.bench.suites.group import Group
from specdec_cli.bench.turn import Turn
from specdec_cli.bench.workload import Workload
from specdec_runtime.loading import LoadedTarget

OVERALL = "overall"
"""The category of rows about all questions."""


class SuiteComparison:
    """Runs rounds in which every contender answers every question.

    The contenders alternate after each group of questions, so a change in the machine's speed affects all of them. The
    first contender changes from group to group. Every contender has its own engine for one round, and
    all engines exist at the same time: `peak_memory_mb` is the peak of all of them together.

    Args:
        target: the loaded target, shared by all.
        workload: how text is generated; its prompts are the first prompts of the questions.
        groups: the questions, in the order in which they are run.
        chats: the questions as conversations, by their number.
        contenders: the first one is the baseline.
        on_done: called after each question and contender, for a progress bar.
    """

    def __init__(
        self,
        target: LoadedTarget,
        workload: Workload,
        groups: Sequence[Group],
        chats: dict[int, Chat],
        contenders: Sequence[Contender],
        on_done: Callable[[], None] = lambda: None,
    ) -> None:
        self._target = target
        self._workload = workload
        self._groups = list(groups)
        self._chats = chats
        self._contenders = list(contenders)
        self.on_done = on_done
        self.rounds: list[list[list[Turn]]] = []
        """For each round and group the turns, in the order of the contenders."""

    @property
    def num_questions(self) -> int:
        """Number of questions that every contender has answered."""
        return sum(len(group.questions) for group in self._done()) if self.rounds else 0

    @property
    def has_bounds_by_rounds(self) -> bool:
        """Whether there are enough rounds for bounds by rounds; otherwise the bounds are by questions."""
        return len(self.rounds) >= MIN_ROUNDS

    def run_round(self) -> None:
        """Run every contender on every question once more.

        If the first round is interrupted, the groups that every contender has answered are kept. An interrupted later round
        is dropped.
        """
        done: list[list[Turn]] = []
        sessions: list[Session] = []
        try:
            for contender in self._contenders:
                sessions.append(Session(self._target, contender, self._workload))
                sessions[-1].warm_up()
            for number, group in enumerate(self._groups):
                gc.freeze()  # existing objects need not be searched for garbage again and again
                done.append(self._take_turns(sessions, group, number + len(self.rounds)))
        finally:
            gc.unfreeze()
            if len(done) == len(self._groups) or (done and not self.rounds):
                self.rounds.append(done)
            for session in sessions:
                session.close()

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per contender over all questions, then one per task and contender if there are several tasks."""
        done = self._done()
        tasks = list(dict.fromkeys(group.task for group in done))
        rows = self._rows(OVERALL, list(range(len(done))))
        for task in tasks if len(tasks) > 1 else []:
            rows += self._rows(task, [place for place, group in enumerate(done) if group.task == task])
        return rows

    def category_rows(self) -> list[dict[str, Any]]:
        """Return one row per category of the file and contender; none if groups mix categories."""
        done = self._done()
        categories = list(dict.fromkeys(group.category for group in done))
        rows: list[dict[str, Any]] = []
        for name in categories if len(categories) > 1 else []:
            assert name is not None
            rows += self._rows(name, [place for place, group in enumerate(done) if group.category == name])
        return rows

    def _rows(self, category: str, places: Sequence[int]) -> list[dict[str, Any]]:
        """Return one row per contender over the groups at these indices."""
        num_questions = sum(len(self._groups[place].questions) for place in places)
        by_group = [
            [[groups[place][index] for place in places] for groups in self.rounds]
            for index in range(len(self._contenders))
        ]
        joined = [[Turn.joined(turns) for turns in rounds] for rounds in by_group]
        rows = []
        for index, contender in enumerate(self._contenders):
            if self.has_bounds_by_rounds:
                speedup = speedup_by_rounds(joined[index], joined[0])
            else:
                speedup = speedup_by_questions(by_group[index], by_group[0])
            row = make_row(
                contender,
                joined[index],
                joined[0],
                num_prompts=num_questions,
                batch_size=self._workload.batch_size,
                speedup=speedup,
            )
            rows.append(row | {"category": category} | more_columns(row, joined[index]))
        return rows

    def _done(self) -> list[Group]:
        """Return the groups that every contender has answered in every round."""
        return self._groups[: len(self.rounds[0])]

    def _take_turns(self, sessions: Sequence[Session], group: Group, number: int) -> list[Turn]:
        """Run every contender on a group; the first contender rotates with `number`."""
        first = number % len(sessions)
        conversations = [(question.number, self._chats[question.number]) for question in group.questions]
        turns = {
            index: sessions[index].converse(conversations, self.on_done)
            for index in [*range(first, len(sessions)), *range(first)]
        }
        return [turns[index] for index in range(len(sessions))]
