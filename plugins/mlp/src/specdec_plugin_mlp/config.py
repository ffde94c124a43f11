"""The configuration keys that both methods share."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from specdec.interfaces import ProposerConfig


class StateHeadsConfig(ProposerConfig):
    """The draft heads, and how their tokens are chosen.

    `num_speculative_tokens` counts nodes: with `tree_top_k` above 1 the depth of a draft is divided by it.
    """

    draft_confidence_threshold: float = Field(
        default=0.0,
        ge=0.0,
        le=1.0,
        description="A draft ends after the first token whose probability, the draft's own, is below this; 0 for never.",
    )
    tree_top_k: int = Field(
        default=1,
        ge=1,
        le=32,
        description="Candidates for each position; the first one is continued, the others are leaves. 1 for chains.",
    )

    @model_validator(mode="after")
    def _needs_a_model(self) -> Self:
        if self.model is None:
            raise ValueError("model is missing: the directory or hub id of the heads, or 'zoo'")
        return self
