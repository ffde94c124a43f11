"""A request for the continuation of a prompt."""

from __future__ import annotations

from typing import Annotated, Any

from annotated_types import MaxLen

from specdec import ConfigError, SamplingParams
from specdec_server.protocol.checks import ListOf
from specdec_server.protocol.generation import GenerationRequest

MAX_REQUESTS = 4096
"""Maximum samples of all prompts in one request."""
_MANY = MaxLen(MAX_REQUESTS)


class CompletionRequest(GenerationRequest):
    """The body of `POST /v1/completions`."""

    prompt: str | Annotated[ListOf[str], _MANY] | ListOf[int] | Annotated[ListOf[ListOf[int]], _MANY]
    max_tokens: int | None = 16
    echo: bool | None = None
    """Prepend the prompt to the text."""
    logprobs: int | None = None
    best_of: int | None = None
    """Must equal `n`."""
    suffix: str | None = None
    """Must be empty; insertion is not supported."""

    @property
    def prompts(self) -> list[str | list[int]]:
        """The prompts as a list.

        Raises:
            ConfigError: if there is none, or there are too many samples.
        """
        given: Any = self.prompt
        if isinstance(given, str) or (given and isinstance(given[0], int)):
            given = [given]
        if not given:
            raise ConfigError("prompt is an empty list: give at least one")
        if len(given) * (self.n or 1) > MAX_REQUESTS:
            raise ConfigError(
                f"{len(given)} prompts of {self.n or 1} samples are more than {MAX_REQUESTS}: send several requests"
            )
        many: list[str | list[int]] = list(given)
        return many

    @property
    def is_only_prompt(self) -> bool:
        """Whether the request wants only the prompt and its log probabilities."""
        return self.max_tokens == 0 and bool(self.echo)

    def to_sampling_params(self, max_logprobs: int) -> SamplingParams:
        """Return the sampling parameters; if only the prompt is wanted, for one token that is discarded.

        Raises:
            ConfigError: naming the one that is wrong.
        """
        if self.best_of not in (None, self.n or 1):
            raise ConfigError(
                f"best_of = {self.best_of} is not supported: ask for n samples and choose among them"
            )
        if self.suffix:
            raise ConfigError("suffix is not supported: text before a given suffix cannot be generated")
        num_logprobs = self.prompt_logprobs
        if self.echo and num_logprobs is None:  # the prompt is then part of the text
            num_logprobs = self.logprobs
        return self.sampling_params(
            max_tokens=1 if self.is_only_prompt else self.max_tokens,
            logprobs=self.logprobs,
            prompt_logprobs=num_logprobs,
            max_logprobs=max_logprobs,
        )
