"""Time of a step by part, with a device sync at every border."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from statistics import median
from time import perf_counter
from types import TracebackType
from typing import Any

from device.clock import synchronize
from specdec.assembly import BuiltEngine


@dataclass(frozen=True)
class Split:
    """One step, or the medians of several, in milliseconds."""

    propose_ms: float
    score_ms: float
    """The forward pass and the step from logits to p-logits."""
    verify_ms: float
    """From p-logits to the verdict, including the NaN check."""
    other_ms: float
    """Scheduling and committing."""

    @property
    def step_ms(self) -> float:
        """The whole step."""
        return self.propose_ms + self.score_ms + self.verify_ms + self.other_ms

    @classmethod
    def median_of(cls, splits: Sequence[Split]) -> Split:
        """Return the median of each part."""
        return cls(*(median(getattr(each, field.name) for each in splits) for field in fields(cls)))


class Borders:
    """Runs engine steps and synchronizes the device at the borders of their parts.

    Inside this context manager the engine's scorer and sampler record their start and end times.
    """

    def __init__(self, built: BuiltEngine) -> None:
        self._built = built
        self._device = built.info.device
        self._times: list[float] = []

    def __enter__(self) -> Borders:
        built = self._built
        setattr(built.scorer, "score", self._noted(built.scorer.score, begins=True))  # noqa: B010
        setattr(built.sampler, "verify", self._noted(built.sampler.verify, begins=False))  # noqa: B010
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del self._built.scorer.score, self._built.sampler.verify

    def step(self) -> Split:
        """Run one step."""
        self._times = [self._now()]
        self._built.engine.step()
        start, score, scored, verified, end = *self._times, self._now()
        stats = self._built.engine.last_step
        assert stats is not None
        return Split(
            propose_ms=1e3 * (score - start) - stats.schedule_ms,
            score_ms=1e3 * (scored - score),
            verify_ms=1e3 * (verified - scored),
            other_ms=1e3 * (end - verified) + stats.schedule_ms,
        )

    def _noted(self, call: Callable[..., Any], *, begins: bool) -> Callable[..., Any]:
        def noted(*arguments: object) -> Any:
            if begins:
                self._times.append(self._now())
            result = call(*arguments)
            self._times.append(self._now())
            return result

        return noted

    def _now(self) -> float:
        synchronize(self._device)
        return perf_counter()
