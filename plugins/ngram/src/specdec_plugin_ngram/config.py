"""The configuration keys of `ngram` and `ngram_gpu`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from specdec.interfaces import ProposerConfig

DEFAULT_LENGTH = 5
"""Both lookup lengths where none is given, as in vLLM."""


class NgramConfig(ProposerConfig):
    """How long a repeated n-gram must be, and which of its earlier occurrences is copied from.

    Where one of the two lengths is missing it takes the value of the other; without either both are 5. After
    validation neither is None.
    """

    prompt_lookup_max: int | None = Field(
        default=None,
        ge=1,
        description="The longest n-gram to look for; prompt_lookup_min where missing, else 5.",
    )
    prompt_lookup_min: int | None = Field(
        default=None,
        ge=1,
        description="The shortest n-gram that counts as a match; prompt_lookup_max where missing, else 5. "
        "`ngram` keeps 5 to 14 bytes per token and length.",
    )
    match: Literal["recent", "first"] = Field(
        default="recent",
        description="`recent` copies from the most recent earlier occurrence, and goes on periodically where the "
        "text ends before the draft does; `first` copies from the earliest one and stops with the text, as vLLM does.",
    )

    @model_validator(mode="after")
    def _resolve_lengths(self) -> NgramConfig:
        shortest, longest = self.lengths
        if shortest > longest:
            raise ValueError(
                f"prompt_lookup_min={shortest} is greater than prompt_lookup_max={longest}; "
                "lower prompt_lookup_min or raise prompt_lookup_max"
            )
        # The model is frozen for its users; resolving the defaults is part of making it.
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
        return (
            shortest or longest or DEFAULT_LENGTH,
            longest or shortest or DEFAULT_LENGTH,
        )
