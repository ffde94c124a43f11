"""Plan of an audit: servers, prompts and parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specdec import ConfigError
from specdec_cli.audit.prompts import Prompt

NUM_GREEDY_RUNS = 5
"""Number of times that each prompt is sent at temperature 0."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Servers, prompts and parameters of an audit.

    Raises:
        ConfigError: for an invalid number.
    """

    url: str
    reference: str | None
    """A server without speculation; None uses the first server with the fields `off`."""
    model: str | None
    reference_model: str | None
    api_key: str | None
    off: Mapping[str, Any]
    """Fields of requests that turn speculation off."""
    prompts: Sequence[Prompt]
    max_tokens: int
    temperature: float
    """Temperature of samples; 0 skips sampling."""
    sampling: Mapping[str, Any]
    """Additional parameters of samples."""
    num_sampled_prompts: int
    num_samples: int
    num_tokens: int
    concurrency: int
    false_alarm_rate: float
    tolerance: float | None
    timeout_s: float
    is_drafting_assumed: bool
    command: str

    def __post_init__(self) -> None:
        least = {
            "--max-tokens": self.max_tokens,
            "--samples": self.num_samples,
            "--sample-tokens": self.num_tokens,
        }
        least |= {"--sampled-prompts": self.num_sampled_prompts, "--concurrency": self.concurrency}
        for name, value in least.items():
            if value < 1:
                raise ConfigError(f"{name} {value} is below 1")
        if not 0 < self.false_alarm_rate < 1:
            raise ConfigError(f"--false-alarm-rate {self.false_alarm_rate:g} is not between 0 and 1")
        if self.temperature < 0 or self.timeout_s <= 0:
            raise ConfigError("--temperature and --timeout cannot be negative")

    @property
    def sampled_prompts(self) -> Sequence[Prompt]:
        """The prompts that are sampled."""
        return self.prompts[: self.num_sampled_prompts]

    @property
    def num_answers(self) -> int:
        """Total number of requested samples."""
        sampled = 2 * len(self.sampled_prompts) * self.num_samples if self.temperature else 0
        return NUM_GREEDY_RUNS * len(self.prompts) + sampled
