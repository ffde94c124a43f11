"""Sampling parameters of one request."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from specdec.config_model import ConfigModel
from specdec.errors import ConfigError
from specdec.structured_outputs import StructuredOutputsParams
from specdec.text.unicode import check_unicode

__all__ = ["LogitsProcessor", "SamplingParams", "accepts_prompt_ids"]

if TYPE_CHECKING:
    import torch

    LogitsProcessor = (
        Callable[[list[int], torch.Tensor], torch.Tensor]
        | Callable[[list[int], list[int], torch.Tensor], torch.Tensor]
    )
else:  # pydantic reads it when the class is made, and torch takes a second or two to import
    LogitsProcessor = Callable[..., Any]
"""Takes the output tokens so far (or the prompt's and the output's) and logits `[V]`, returns logits `[V]`."""


def accepts_prompt_ids(processor: LogitsProcessor) -> bool:
    """Return whether a logits processor takes three arguments.

    Raises:
        ValueError: if its signature is not available.
    """
    try:
        return len(signature(processor).parameters) == 3
    except ValueError:
        raise ValueError(
            f"{processor!r} does not say which arguments it takes: wrap it in a function of (output ids, logits)"
        ) from None


class SamplingParams(ConfigModel):
    """Sampling parameters of one request, with vLLM's names and meanings. All work with speculation.

    Raises:
        ConfigError: naming the parameter, its value and what is allowed.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)
    _error_prefix = "SamplingParams"

    n: int = Field(default=1, ge=1, description="Number of samples, each with its own noise.")
    temperature: float = Field(default=1.0, ge=0.0, allow_inf_nan=False, description="0 means greedy.")
    top_p: float = Field(
        default=1.0,
        gt=0.0,
        le=1.0,
        description="Keep the most probable tokens up to this cumulative probability.",
    )
    top_k: int = Field(default=0, ge=-1, description="0 or -1 means all.")
    min_p: float = Field(
        default=0.0,
        ge=0.0,
        le=1.0,
        description="Keep tokens with at least this share of the highest probability.",
    )
    seed: int | None = Field(default=None, description="None means fresh noise, and so does -1, as in vLLM.")
    max_tokens: int | None = Field(default=16, ge=1, description="None means up to the context window.")
    min_tokens: int = Field(
        default=0, ge=0, description="Output tokens before which nothing ends the sample."
    )
    stop: str | list[str] | None = Field(
        default=None, description="Strings that end the output, which ends before them."
    )
    stop_token_ids: list[int] | None = Field(default=None, description="Tokens that end the output.")
    include_stop_str_in_output: bool = Field(default=False, description="Keep the stop string in the output.")
    ignore_eos: bool = Field(default=False, description="Go on after an end-of-text token.")
    logprobs: int | None = Field(
        default=None,
        ge=-1,
        description="How many of the most probable tokens to list for each output token; -1 means all.",
    )
    prompt_logprobs: int | None = Field(default=None, ge=-1, description="The same for each prompt token.")
    presence_penalty: float = Field(
        default=0.0, ge=-2.0, le=2.0, description="Subtracted from the logit of each token in the output."
    )
    frequency_penalty: float = Field(
        default=0.0,
        ge=-2.0,
        le=2.0,
        description="Subtracted once for each time that the token is in the output.",
    )
    repetition_penalty: float = Field(
        default=1.0,
        gt=0.0,
        allow_inf_nan=False,
        description="Divides positive logits, multiplies negative ones, of tokens in prompt or output.",
    )
    logit_bias: dict[int, float] | None = Field(
        default=None, description="Added to the logits of these token ids."
    )
    bad_words: list[str] | None = Field(default=None, description="Words that the output must not contain.")
    allowed_token_ids: list[int] | None = Field(
        default=None, min_length=1, description="The only token ids that may be chosen."
    )
    logits_processors: list[LogitsProcessor] | None = Field(
        default=None,
        description="Functions of (output ids, logits) or of (prompt ids, output ids, logits) that return logits. What they "
        "return must depend on their arguments alone: they are called in any order, for rejected drafted tokens as well, "
        "and all n samples share them.",
    )
    structured_outputs: StructuredOutputsParams | None = Field(
        default=None,
        description="A JSON schema, regular expression, choice or grammar that the output follows.",
    )
    detokenize: bool = Field(default=True, description="Make text of the output; token ids alone if False.")
    skip_special_tokens: bool = Field(default=True, description="Leave special tokens out of the text.")
    truncate_prompt_tokens: int | None = Field(
        default=None,
        description="Keep only so many of the prompt's last tokens; -1 means as many as fit together with `max_tokens`.",
    )
    prediction: str | list[int] | None = Field(
        default=None,
        description="The output that is expected, as text or token ids: most of it is drafted from there, whatever the method "
        "and without one. It never changes the output.",
    )
    speculative: Literal[False] | Mapping[str, Any] | None = Field(
        default=None,
        description="False turns speculation off for this request; {'num_speculative_tokens': k} lowers k, 'method' takes one "
        "of the loaded methods, and 'args' are for it.",
    )

    thinking_token_budget: int | None = Field(
        default=None,
        ge=-1,
        description="Most tokens of reasoning; then its end marker is forced (`reasoning_config` of `LLM`). None or -1 means "
        "no limit.",
    )
    return_draft_steps: bool = Field(
        default=False,
        description="Have `draft_steps` in each sample: what every step drafted and what was accepted.",
    )

    @field_validator("seed", "thinking_token_budget")
    @classmethod
    def _none_of_minus_one(cls, value: int | None) -> int | None:
        return None if value == -1 else value

    @field_validator("truncate_prompt_tokens")
    @classmethod
    def _something_is_kept(cls, count: int | None) -> int | None:
        if count is not None and count != -1 and count < 1:
            raise ValueError("must be at least 1, or -1 for as many as fit")
        return count

    @field_validator("stop", "bad_words", "prediction")
    @classmethod
    def _texts_are_unicode(cls, texts: str | list[str] | list[int] | None) -> object:
        for index, text in enumerate([texts] if isinstance(texts, str) else texts or ()):
            if isinstance(text, str):
                check_unicode(text, f"[{index}]")
        return texts

    @field_validator("speculative")
    @classmethod
    def _known_speculative_keys(cls, value: object) -> object:
        if isinstance(value, Mapping):
            kinds = {"method": str, "num_speculative_tokens": int, "args": Mapping}
            if unknown := set(value) - set(kinds):
                raise ValueError(f"supports {', '.join(kinds)}, got {sorted(map(str, unknown))}")
            for key, given in value.items():
                if not isinstance(given, kinds[key]) or isinstance(given, bool):
                    raise ValueError(f"{key} must be a {kinds[key].__name__}, got {given!r}")
            if value.get("num_speculative_tokens", 0) < 0:
                raise ValueError("num_speculative_tokens must be at least 0")
        return value

    @field_validator("structured_outputs", mode="before")
    @classmethod
    def _structured_outputs_of(cls, value: object) -> object:
        return StructuredOutputsParams(**value) if isinstance(value, Mapping) else value

    @field_validator("logit_bias")
    @classmethod
    def _biases_are_numbers(cls, bias: dict[int, float] | None) -> object:
        if bias is not None and not all(math.isfinite(value) for value in bias.values()):
            raise ValueError("biases must be finite; to forbid ids use allowed_token_ids or a bias of -100")
        return bias

    @field_validator("logits_processors")
    @classmethod
    def _processors_can_be_called(cls, processors: list[LogitsProcessor] | None) -> object:
        for processor in processors or ():
            num_arguments = 3 if accepts_prompt_ids(processor) else 2
            try:
                signature(processor).bind(*[None] * num_arguments)
            except TypeError:
                raise ValueError(
                    f"{processor!r} cannot be called with (output ids, logits) or (prompt ids, output ids, logits)"
                ) from None
        return processors

    @model_validator(mode="after")
    def _parameters_fit_together(self) -> SamplingParams:
        if any(not s for s in self.stop_strings):
            raise ValueError("stop strings must not be empty")
        if self.stop_strings and not self.detokenize:
            raise ValueError(
                "stop strings are found in the text: leave out detokenize=False, or use stop_token_ids"
            )
        if any(not word.strip() for word in self.bad_words or ()):
            raise ValueError("bad_words must not be empty or blank")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise ValueError(
                f"min_tokens = {self.min_tokens} must not be above max_tokens = {self.max_tokens}"
            )
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        raise ConfigError(
            f"SamplingParams do not change: params.clone({name}={value!r}) returns a changed copy"
        )

    def clone(self, **changes: Any) -> SamplingParams:
        """Return a copy, with the given parameters changed. Logits processors are shared, as in vLLM.

        Raises:
            ConfigError: as the constructor.
        """
        shared = {id(processor): processor for processor in self.logits_processors or ()}
        kept = {name: getattr(self, name) for name in self.model_fields_set - changes.keys()}
        return type(self)(**deepcopy(kept, shared), **changes)

    @property
    def is_greedy(self) -> bool:
        """Whether the most probable token is always chosen."""
        return self.temperature == 0.0

    @property
    def is_endless(self) -> bool:
        """Whether end-of-text tokens are ignored; never with structured outputs, whose text ends there."""
        return self.ignore_eos and self.structured_outputs is None

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """The stop strings as a tuple."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    def cap_speculation(self, num_speculative_tokens: int) -> int:
        """Return the maximum number of nodes to draft for this request in one step."""
        if self.speculative is False:
            return 0
        lower: int = (self.speculative or {}).get("num_speculative_tokens", num_speculative_tokens)
        return min(num_speculative_tokens, lower)
