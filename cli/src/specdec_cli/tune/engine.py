"""An engine that stays alive while its configuration is in the running."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from specdec_cli.bench.contender import Contender
from specdec_cli.bench.conversation import OnePrompt
from specdec_cli.bench.session import Session, WarmUp
from specdec_cli.bench.turn import Turn
from specdec_cli.bench.workload import Workload
from specdec_runtime.loading import LoadedTarget


class Engine(Protocol):
    """What stages need of an engine."""

    warm_up: WarmUp
    """Durations of its first steps."""

    def answer(
        self, prompts: Sequence[int], max_tokens: int, lower: int | None, on_done: Callable[[], None]
    ) -> Turn:
        """Generate for prompts of the workload, by their numbers, with a lower k if one is given."""
        ...

    def warm_again(self) -> None:
        """Measure its first steps once more, and keep the faster ones."""
        ...

    def close(self) -> None:
        """Free its memory."""
        ...


MakeEngine = Callable[[Contender], Engine]


class MeasuredEngine:
    """A warm engine on the shared target.

    Args:
        target: the loaded target.
        workload: the prompts and how text is generated for them.
        contender: its configuration.

    Raises:
        ConfigError: for a configuration that does not fit the target.
        PluginError: for a method that cannot be loaded.
    """

    def __init__(self, target: LoadedTarget, workload: Workload, contender: Contender) -> None:
        self._workload = workload
        self._session = Session(target, contender, workload)
        self._session.warm_up()  # which compiles
        self.warm_up = self._session.warm_up()

    def answer(
        self, prompts: Sequence[int], max_tokens: int, lower: int | None, on_done: Callable[[], None]
    ) -> Turn:
        """Generate for prompts of the workload."""
        self._session.workload = replace(self._workload, max_tokens=max_tokens, num_speculative_tokens=lower)
        asked = [(number, OnePrompt(self._workload.prompts[number])) for number in prompts]
        return self._session.converse(asked, on_done)

    def warm_again(self) -> None:
        """Measure its first steps once more, and keep the faster ones."""
        now, before = self._session.warm_up(), self.warm_up
        fastest = min(now.fastest_step_s, before.fastest_step_s)
        self.warm_up = replace(before, fastest_step_s=fastest)

    def close(self) -> None:
        """Free its memory."""
        self._session.close()
