"""Configuration keys that all proposers with a model or head share."""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import Field, model_validator

from specdec.interfaces import Capability, ProposerConfig


class DraftingConfig(ProposerConfig):
    """The draft's checkpoint, and how its tokens are chosen.

    `num_speculative_tokens` counts nodes: with `tree_top_k` above 1 the depth of a draft is divided by it.
    """

    checkpoint: ClassVar[str | None] = None
    """What `model` has to name, for messages; None if it may be left out."""

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
        if self.model is None and self.checkpoint is not None:
            raise ValueError(f"model is missing: the directory or hub id of {self.checkpoint}, or 'zoo'")
        return self

    @property
    def is_tree(self) -> bool:
        """Whether drafts are trees."""
        return self.tree_top_k > 1

    @property
    def has_confidence(self) -> bool:
        """Whether drafts have the confidence in their nodes."""
        return self.draft_confidence_threshold > 0

    def used(self, capabilities: frozenset[Capability]) -> frozenset[Capability]:
        """Return those of a class's capabilities that this configuration uses."""
        unused = set() if self.is_tree else {Capability.TREE}
        if self.draft_sample_method != "probabilistic":
            unused.add(Capability.DRAFT_PROBS)
        return capabilities - unused
