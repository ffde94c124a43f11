"""What requests for text have in common."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from specdec import SamplingParams
from specdec_server.protocol.response_format import ResponseFormat

_SAMPLING = (
    "n", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "stop_token_ids", "min_tokens", "ignore_eos",
    "include_stop_str_in_output", "skip_special_tokens", "presence_penalty", "frequency_penalty", "repetition_penalty",
    "logit_bias", "bad_words", "allowed_token_ids", "truncate_prompt_tokens", "prompt_logprobs", "structured_outputs",
    "speculative",
)  # fmt: skip
"""Fields that are sampling parameters of the same name."""


class StreamOptions(BaseModel):
    """How a stream is sent."""

    model_config = ConfigDict(extra="forbid")

    include_usage: bool | None = None
    """End with a piece that has no choices and the usage of all."""
    continuous_usage_stats: bool | None = None
    """Have the usage so far in every piece."""
    include_obfuscation: bool | None = None
    """Has no effect: nothing is padded."""


class GenerationRequest(BaseModel):
    """Fields of OpenAI's interface, and sampling parameters that it does not have. null is as if a field were not there."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    request_id: str | None = Field(None, min_length=1)

    n: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[int, float] | None = None
    bad_words: list[str] | None = None
    allowed_token_ids: list[int] | None = None
    truncate_prompt_tokens: int | None = None
    prompt_logprobs: int | None = None
    structured_outputs: dict[str, Any] | None = None
    response_format: ResponseFormat | None = None
    speculative: Literal[False] | dict[str, int] | None = None
    return_token_ids: bool | None = None

    user: str | None = None
    """This and what follows has no effect on the text."""
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    service_tier: str | None = None

    def sampling_params(self, *, max_tokens: int | None, logprobs: int | None) -> SamplingParams:
        """Return the sampling parameters.

        Raises:
            ConfigError: naming the one that is wrong.
        """
        given = {name: value for name in _SAMPLING if (value := getattr(self, name)) is not None}
        if self.response_format is not None and (wanted := self.response_format.structured_outputs):
            given.setdefault("structured_outputs", wanted)
        return SamplingParams(max_tokens=max_tokens, logprobs=logprobs, **given)
