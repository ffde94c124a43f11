"""Divides the time of a run among answers, training and the final measurement."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

_ANSWER_SHARE = 0.4
"""Maximum share of the run for answers: up to about here, more text helps more than more epochs."""
_MEASURE_SHARE = 0.1
_LONGEST_MEASURE = 120.0
"""Maximum number of seconds for the measurement."""


@dataclass(frozen=True)
class Budget:
    """How long each part of a run may take.

    Args:
        seconds: time of the whole run, None for no limit.
        file: stores the time that answers have taken, for resumed runs.
    """

    seconds: float | None
    file: Path

    @property
    def answer_seconds(self) -> float:
        """Seconds spent on answers so far, including earlier parts of the run."""
        try:
            return float(json.loads(self.file.read_text())["answer_seconds"])
        except (OSError, ValueError, KeyError):
            return 0.0

    def note_answers(self, seconds: float) -> None:
        """Add to the seconds that answers have taken."""
        total = self.answer_seconds + seconds
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_text(json.dumps({"answer_seconds": round(total, 1)}) + "\n")
        except OSError as error:
            raise ValueError(f"{self.file} cannot be written: {error.strerror}") from None

    @property
    def measure_seconds(self) -> float:
        """Seconds for the measurement at the end."""
        if self.seconds is None:
            return _LONGEST_MEASURE
        return min(_MEASURE_SHARE * self.seconds, _LONGEST_MEASURE)

    def answer_deadline(self) -> float:
        """Return the deadline for answers, on `time.monotonic`'s clock."""
        if self.seconds is None:
            return float("inf")
        return time.monotonic() + max(_ANSWER_SHARE * self.seconds - self.answer_seconds, 0.0)

    def train_minutes(self, *, measures: bool) -> float | None:
        """Return the minutes for training, including its earlier parts; None for no limit."""
        if self.seconds is None:
            return None
        rest = self.seconds - self.answer_seconds - (self.measure_seconds if measures else 0.0)
        return max(rest, 0.0) / 60.0
