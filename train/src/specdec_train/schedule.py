"""Learning-rate schedule (warmup, stable, decay to zero), bounded by steps and by time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """Warmup-stable-decay.

    Args:
        warmup: share of the run at its start in which the rate rises linearly from zero.
        decay: share of the run at its end in which the rate falls linearly to zero.
    """

    warmup: float = 0.02
    decay: float = 0.4

    def __post_init__(self) -> None:
        if not 0 <= self.warmup <= 1 - self.decay <= 1:
            raise ValueError(
                f"warmup={self.warmup} and decay={self.decay} must be shares that fit into one run"
            )

    def multiplier(self, progress: float) -> float:
        """Factor on the peak learning rate, in [0, 1].

        Args:
            progress: share of the run that is done, in [0, 1].
        """
        progress = min(max(progress, 0.0), 1.0)
        rise = (progress / self.warmup) if progress < self.warmup else 1.0
        fall = (1.0 - progress) / self.decay if self.decay else 1.0
        return min(rise, fall, 1.0)


def progress_of(step: int, max_steps: int, seconds: float, max_seconds: float | None) -> float:
    """Share of a run that is done: of its steps or of its time, whichever is further.

    A machine slower than planned thus takes fewer steps, but still ends at a rate of zero.

    Args:
        step: optimizer steps taken.
        max_steps: planned optimizer steps.
        seconds: training time so far, including resumed parts.
        max_seconds: time budget, None for no limit.
    """
    fraction = step / max_steps
    if max_seconds is None:
        return fraction
    return max(fraction, seconds / max_seconds) if max_seconds > 0.0 else 1.0
