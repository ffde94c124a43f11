"""What one batch took."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Point:
    """Prompts and steps of one batch, in one run."""

    name: str
    """What ran: `plain`, `sampled`, a method, `deterministic`."""
    batch_size: int
    context: int
    """Tokens of each prompt."""
    k: int
    """0 means no speculation."""
    prompts_s: float
    """From the first step to the end of the last one with tokens of a prompt."""
    step_ms: float
    """Median time from the end of one step to the end of the next, without prompts."""
    forward_ms: float
    """Median time of the bare pass over the rows of such steps, run again between two waits."""
    tokens_per_s: float
    """Measured in the same steps."""
    mean_acceptance_length: float
    num_bytes: float
    """The least that a step reads: the weights once, and the keys and values of every request."""
    head_bytes: float
    """The least that drafting reads; 0 where no head drafts."""
    bound_ms: float | None
    """Time to read `num_bytes`; None if the bandwidth is unknown."""
    head_bound_ms: float | None
    """Time to read `head_bytes`."""

    @property
    def num_rows(self) -> int:
        """Rows of the pass."""
        return self.batch_size * (1 + self.k)

    @property
    def rest_ms(self) -> float:
        """A step without its bare pass: drafting, verification, commit and the host, where they do not run beside it."""
        return self.step_ms - self.forward_ms

    @property
    def prompt_tokens_per_s(self) -> float:
        """Tokens of prompts read in a second."""
        return self.batch_size * self.context / self.prompts_s

    @property
    def where(self) -> str:
        """The measurement in words."""
        return f"{self.name}, batch {self.batch_size}, context {self.context}" + (
            f", k = {self.k}" if self.k else ""
        )

    @property
    def line(self) -> str:
        """All of it, in one line."""
        bound = "" if self.bound_ms is None else f" ({self.step_ms / self.bound_ms:.2f} of reading)"
        prompts = f"{self.prompts_s:.3f} s ({self.prompt_tokens_per_s:.0f}/s)"
        steps = f"step {self.step_ms:.3f} ms{bound}, pass {self.forward_ms:.3f} ms, {self.tokens_per_s:.0f} tokens/s"
        return f"{self.where}: prompts {prompts}, {steps}, {self.mean_acceptance_length:.2f} a draft"

    def as_dict(self) -> dict[str, object]:
        """Return what is kept in a result."""
        more = ("num_rows", "rest_ms", "prompt_tokens_per_s")
        return {**asdict(self), **{name: getattr(self, name) for name in more}}

    @classmethod
    def from_dict(cls, kept: dict[str, object]) -> Point:
        """Return a point that was kept."""
        return cls(**{name: kept[name] for name in cls.__dataclass_fields__})  # type: ignore[arg-type]  # of its own types
