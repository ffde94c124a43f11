"""One batch size with one k, measured."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from device.split import Split


@dataclass(frozen=True)
class Point:
    """What steps of one batch size and one k take."""

    batch_size: int
    k: int
    """0: without speculation."""
    step_ms: float
    """Median of steps that nobody disturbed."""
    tokens_per_s: float
    """In the same run."""
    mean_acceptance_length: float
    split: Split
    """From a run of its own, with the device idle at every border."""
    forward_ms: float
    """The bare pass of the same rows, in the run of the split, by turns with its steps."""
    num_bytes: float
    """Bytes that a step reads at least: the weights once, and the keys and values of every request."""
    bound_ms: float | None
    """How long reading them takes; None where no bandwidth is known."""

    @property
    def num_rows(self) -> int:
        """Rows of the pass."""
        return self.batch_size * (1 + self.k)

    @property
    def overhead_ms(self) -> float:
        """Verifying, committing and all else on the host: what is neither proposing nor the bare pass."""
        return self.split.step_ms - self.split.propose_ms - self.forward_ms

    @property
    def share_of_bandwidth(self) -> float | None:
        """The bound over the time of a step."""
        return None if self.bound_ms is None else self.bound_ms / self.step_ms

    def as_dict(self) -> dict[str, object]:
        """Return what is kept in a result."""
        return {
            **asdict(self),
            "num_rows": self.num_rows,
            "overhead_ms": self.overhead_ms,
            "share_of_bandwidth": self.share_of_bandwidth,
        }
