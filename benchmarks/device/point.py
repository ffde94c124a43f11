"""Measurements for one batch size and one k."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from device.split import Split


@dataclass(frozen=True)
class Point:
    """Step times and throughput for one batch size and one k."""

    batch_size: int
    k: int
    """0 means no speculation."""
    step_ms: float
    """Median of steps without instrumentation."""
    tokens_per_s: float
    """Measured in the same run."""
    mean_acceptance_length: float
    split: Split
    """From a separate run with a device sync at every border."""
    forward_ms: float
    """The bare forward pass over the same rows, measured in the run of `split`, alternating with its steps."""
    num_bytes: float
    """Minimum bytes that a step reads: the weights once, and the keys and values of every request."""
    bound_ms: float | None
    """Time to read them; None if the bandwidth is unknown."""

    @property
    def num_rows(self) -> int:
        """Rows of the pass."""
        return self.batch_size * (1 + self.k)

    @property
    def overhead_ms(self) -> float:
        """Step time minus proposing and the bare pass: verification, commit and other host work."""
        return self.split.step_ms - self.split.propose_ms - self.forward_ms

    @property
    def share_of_bandwidth(self) -> float | None:
        """The bound divided by the step time."""
        return None if self.bound_ms is None else self.bound_ms / self.step_ms

    def as_dict(self) -> dict[str, object]:
        """Return what is kept in a result."""
        return {
            **asdict(self),
            "num_rows": self.num_rows,
            "overhead_ms": self.overhead_ms,
            "share_of_bandwidth": self.share_of_bandwidth,
        }
