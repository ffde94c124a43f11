"""Fields shared by requests for text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from annotated_types import MaxLen
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from specdec import ConfigError, SamplingParams
from specdec_server.protocol.checks import ListOf, check_fields, check_value
from specdec_server.protocol.harmless import HarmlessFields
from specdec_server.protocol.prediction import PredictedContent
from specdec_server.protocol.response_format import ResponseFormat

MAX_SAMPLES = 128
"""Maximum samples per prompt, as for OpenAI."""
_Stop = Annotated[str, MaxLen(512)]
_Word = Annotated[str, MaxLen(128)]
_SAMPLING = (
    "n", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "stop_token_ids", "min_tokens", "ignore_eos",
    "include_stop_str_in_output", "skip_special_tokens", "presence_penalty", "frequency_penalty", "repetition_penalty",
    "logit_bias", "bad_words", "allowed_token_ids", "truncate_prompt_tokens", "structured_outputs",
    "speculative", "return_draft_steps", "thinking_token_budget",
)  # fmt: skip
"""Fields that are sampling parameters with the same name."""


class StreamOptions(BaseModel):
    """Options of a stream."""

    model_config = ConfigDict(extra="forbid")

    include_usage: bool | None = None
    """Send a last chunk with the total usage and no choices."""
    continuous_usage_stats: bool | None = None
    """Include the usage so far in every chunk."""
    include_obfuscation: bool | None = None
    """Has no effect: nothing is padded."""


class GenerationRequest(HarmlessFields):
    """Fields of OpenAI's interface and additional sampling parameters."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)  # field descriptions in /docs

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    request_id: str | None = Field(None, pattern=r"^[\w.:-]{1,128}$")

    n: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: _Stop | Annotated[ListOf[_Stop], MaxLen(128)] | None = None
    stop_token_ids: Annotated[ListOf[int], MaxLen(1024)] | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[int, float] | None = None
    bad_words: Annotated[ListOf[_Word], MaxLen(1024)] | None = None
    allowed_token_ids: ListOf[int] | None = None
    truncate_prompt_tokens: int | None = None
    prompt_logprobs: int | None = None
    structured_outputs: dict[str, Any] | None = None
    response_format: ResponseFormat | None = None
    prediction: PredictedContent | None = None
    """The output that is expected: most of it is drafted from there. It never changes the output."""
    speculative: Literal[False] | dict[str, Any] | None = None
    thinking_token_budget: int | None = None
    """Most tokens of reasoning; then its end is written. Needs `--reasoning-parser`, or `--reasoning-config`."""
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    """Call tokens in `logprobs` `token_id:N`, so that those whose text is no JSON are told apart."""
    return_draft_steps: bool | None = None
    """Include `draft_steps` in each choice: the drafted tokens, the proposer and the accepted tokens of every step."""
    cache_salt: str | None = None
    """Only requests with the same salt share cached prefixes, so that nobody can measure what others ask."""
    priority: int | None = None
    """Lower values run first if the server runs with `--scheduling-policy priority`."""

    _is_sound = field_validator("*", mode="before")(check_value)
    _has_known_fields = model_validator(mode="before")(check_fields)

    @property
    def has_limit(self) -> bool:
        """Whether the request itself limits its output."""
        limits = {"max_tokens", "max_completion_tokens", "max_output_tokens"}
        return bool(limits & self.model_fields_set)

    def with_defaults(self, defaults: Mapping[str, Any]) -> Self:
        """Return the request with the server's sampling parameters (`--override-generation-config`) for those it leaves out."""
        return self.model_copy(
            update={name: value for name, value in defaults.items() if getattr(self, name) is None}
        )

    def sampling_params(
        self,
        *,
        max_tokens: int | None,
        logprobs: int | None,
        prompt_logprobs: int | None,
        max_logprobs: int,
    ) -> SamplingParams:
        """Return the sampling parameters.

        Args:
            max_tokens: maximum tokens; None for as many as fit.
            logprobs: tokens to list for each position; None for no log probabilities.
            prompt_logprobs: the same for each token of the prompt.
            max_logprobs: allowed maximum of both.

        Raises:
            ConfigError: naming the one that is wrong.
        """
        self.notice_harmless()
        given = {name: value for name in _SAMPLING if (value := getattr(self, name)) is not None}
        if self.stream_options is not None and not self.stream:
            raise ConfigError("stream_options needs stream to be true")
        if self.n is not None and self.n > MAX_SAMPLES:
            raise ConfigError(f"n = {self.n} is above {MAX_SAMPLES}: ask several times")
        for name, count in (("logprobs", logprobs), ("prompt_logprobs", prompt_logprobs)):
            if count is not None and not 0 <= count <= max_logprobs:
                raise ConfigError(
                    f"{name} = {count} is not in 0 to {max_logprobs}, the server's --max-logprobs"
                )
        if self.response_format is not None and (wanted := self.response_format.structured_outputs):
            if "structured_outputs" in given:
                raise ConfigError(
                    "response_format and structured_outputs are two ways to ask for one thing: give one"
                )
            given["structured_outputs"] = wanted
        if self.prediction is not None:
            given["prediction"] = self.prediction.text
        return SamplingParams(
            max_tokens=max_tokens, logprobs=logprobs, prompt_logprobs=prompt_logprobs, **given
        )
