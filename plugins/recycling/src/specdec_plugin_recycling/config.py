"""The configuration keys of `recycling`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from specdec.interfaces import ProposerConfig, Resolve

_DEFAULT_TOKENS = 8


class RecyclingConfig(ProposerConfig):
    """How many successors of a token are kept, and how unlikely a drafted token may be."""

    num_successors: int = Field(
        default=8, ge=1, le=64, description="Probable ids that are kept after each id of the vocabulary."
    )
    min_probability: float = Field(
        default=0.05,
        ge=0.0,
        lt=1.0,
        description="Least estimated probability that a drafted token is accepted; lower where verified rows cost little.",
    )

    @classmethod
    def complete(cls, keys: Mapping[str, Any], resolve: Resolve) -> dict[str, Any]:
        """Set the default of `num_speculative_tokens`."""
        return {"num_speculative_tokens": _DEFAULT_TOKENS, **keys}

    @model_validator(mode="after")
    def _refuse_revision(self) -> RecyclingConfig:
        if self.revision is not None:
            raise ValueError(f"revision={self.revision!r}: recycling has no draft model; remove revision")
        return self
