"""The configuration keys of `ngram` and `ngram_gpu`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from specdec.interfaces import ProposerConfig, Resolve

_DEFAULT_TOKENS = 5

DEFAULT_LENGTHS = (2, 4)
"""Default lookup lengths: on chats and on code, two tokens match in nearly every text and about half of the drafted tokens
are accepted; with one token many are rejected."""
VLLM_LENGTH = 5
"""vLLM's default for both lookup lengths."""


class NgramConfig(ProposerConfig):
    """The length of a matching n-gram, and which earlier occurrence is copied from.

    If one of the two lengths is missing it takes the value of the other, as in vLLM; if both are missing they are 2 and 4.
    After validation neither is None.
    """

    prompt_lookup_max: int | None = Field(
        default=None,
        ge=1,
        description="The longest n-gram to look for; prompt_lookup_min where missing, else 4.",
    )
    prompt_lookup_min: int | None = Field(
        default=None,
        ge=1,
        description="The shortest n-gram that counts as a match; prompt_lookup_max where missing, else 2. "
        "`ngram` keeps 5 to 14 bytes per token and length.",
    )
    vllm_defaults: bool = Field(
        default=False,
        description="Where neither length is given take vLLM's, which is 5 for both.",
    )
    match: Literal["recent", "first"] = Field(
        default="recent",
        description="`recent` copies from the most recent earlier occurrence, and goes on periodically where the "
        "text ends before the draft does; `first` copies from the earliest one and stops with the text, as vLLM does.",
    )

    @classmethod
    def complete(cls, keys: Mapping[str, Any], resolve: Resolve) -> dict[str, Any]:
        """Set the default of `num_speculative_tokens`."""
        return {"num_speculative_tokens": _DEFAULT_TOKENS, **keys}

    @model_validator(mode="after")
    def _resolve_lengths(self) -> NgramConfig:
        shortest, longest = self.lengths
        if shortest > longest:
            raise ValueError(
                f"prompt_lookup_min={shortest} is greater than prompt_lookup_max={longest}; "
                "lower prompt_lookup_min or raise prompt_lookup_max"
            )
        # The model is frozen, but resolving the defaults is part of its construction.
        object.__setattr__(self, "prompt_lookup_min", shortest)
        object.__setattr__(self, "prompt_lookup_max", longest)
        return self

    @model_validator(mode="after")
    def _refuse_revision(self) -> NgramConfig:
        if self.revision is not None:
            raise ValueError(f"revision={self.revision!r}: prompt lookup has no draft model; remove revision")
        return self

    @property
    def lengths(self) -> tuple[int, int]:
        """The shortest and the longest n-gram to look for, defaults resolved."""
        shortest, longest = self.prompt_lookup_min, self.prompt_lookup_max
        lowest, highest = (VLLM_LENGTH, VLLM_LENGTH) if self.vllm_defaults else DEFAULT_LENGTHS
        return shortest or longest or lowest, longest or shortest or highest
