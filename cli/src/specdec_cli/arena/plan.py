"""What `specdec arena run` was asked to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from specdec import ConfigError
from specdec_cli.bench.suites import Question, Suite, even_sample, load_suite

MOST_REQUESTS = 64
"""Of a batch."""
STAMP_TOKENS, SAMPLE_TOKENS = 48, 6
"""Of an answer of the stamp at temperature 0, and of a sample."""
STAMP_WIDTH = 16
"""Requests in flight for samples."""
SAMPLED_PROMPTS = 8
"""Of how many prompts there are samples."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The questions, and how everybody answers them.

    Raises:
        ConfigError: for an invalid number, and for questions that cannot be read.
    """

    suite: str
    dataset: Path | None = None
    num_prompts: int | None = None
    model: str = ""
    speculative_config: Sequence[str] = ()
    url: Sequence[str] = ()
    plain_url: str | None = None
    """A server without speculation; None: the first `url` with the fields `off`, if there are any."""
    off: Mapping[str, Any] = field(default_factory=dict)
    served_model: str | None = None
    api_key: str | None = None
    timeout: float = 300.0
    """Seconds."""
    batch_size: Sequence[int] = (1,)
    max_tokens: int = 128
    temperature: float = 0.0
    seed: int = 0
    dtype: str = "auto"
    max_model_len: int | None = None
    stamp_samples: int = 128
    """Of each prompt and contestant; 0: only temperature 0."""
    stamp_temperature: float = 0.8

    def __post_init__(self) -> None:
        if bool(self.speculative_config) == bool(self.url):
            raise ConfigError(
                "arena run: give --speculative-config or --url, as often as you like, and not both"
            )
        if wrong := [size for size in self.batch_size if not 1 <= size <= MOST_REQUESTS]:
            raise ConfigError(f"--batch-size {wrong[0]} is not between 1 and {MOST_REQUESTS}")
        if self.stamp_temperature <= 0:
            raise ConfigError("--stamp-temperature must be above 0; --stamp-samples 0 leaves samples out")
        assert self.questions

    @cached_property
    def questions_of_suite(self) -> Suite:
        """The suite with all its questions."""
        return load_suite(self.suite, self.dataset)

    @cached_property
    def questions(self) -> list[Question]:
        """Those that are asked, categories alternating."""
        return even_sample(self.questions_of_suite.questions, self.num_prompts)
