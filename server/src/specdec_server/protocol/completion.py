"""A request for the continuation of a prompt."""

from __future__ import annotations

from typing import Annotated, Any

from annotated_types import MaxLen

from specdec import ConfigError, SamplingParams
from specdec_server.protocol.checks import ListOf
from specdec_server.protocol.generation import GenerationRequest

MAX_REQUESTS = 4096
"""The most samples of all prompts of one request."""
_MANY = MaxLen(MAX_REQUESTS)


class CompletionRequest(GenerationRequest):
    """The body of `POST /v1/completions`."""

    prompt: str | Annotated[ListOf[str], _MANY] | ListOf[int] | Annotated[ListOf[ListOf[int]], _MANY]
    max_tokens: int | None = 16
    echo: bool | None = None
    """Begin the text with the prompt."""
    logprobs: int | None = None
    best_of: int | None = None
    """Only as many as `n`."""
    suffix: str | None = None
    """Only empty: text cannot be made to lead to other text."""

    @property
    def prompts(self) -> list[str | list[int]]:
        """The prompts one by one.

        Raises:
            ConfigError: if there is none.
        """
        given: Any = self.prompt
        if isinstance(given, str) or (given and isinstance(given[0], int)):
            given = [given]
        if not given:
            raise ConfigError("prompt: there is none in the list; give at least one")
        if len(given) * (self.n or 1) > MAX_REQUESTS:
            raise ConfigError(
                f"{len(given)} prompts of {self.n or 1} samples are more than {MAX_REQUESTS}: send several requests"
            )
        many: list[str | list[int]] = list(given)
        return many

    @property
    def is_only_prompt(self) -> bool:
        """Whether nothing is wanted but the prompt, and what is known of it."""
        return self.max_tokens == 0 and bool(self.echo)

    def to_sampling_params(self, max_logprobs: int) -> SamplingParams:
        """Return the sampling parameters; where nothing but the prompt is wanted, of one token that is to be thrown away.

        Raises:
            ConfigError: naming the one that is wrong.
        """
        if self.best_of not in (None, self.n or 1):
            raise ConfigError(
                f"best_of = {self.best_of} is not supported: ask for n samples and choose among them"
            )
        if self.suffix:
            raise ConfigError("suffix is not supported: text cannot be made to lead to other text here")
        told = self.prompt_logprobs
        if self.echo and told is None:  # the prompt is a part of the text then
            told = self.logprobs
        return self.sampling_params(
            max_tokens=1 if self.is_only_prompt else self.max_tokens,
            logprobs=self.logprobs,
            prompt_logprobs=told,
            max_logprobs=max_logprobs,
        )
