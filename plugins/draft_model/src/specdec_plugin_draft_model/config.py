"""The configuration keys of `draft_model`."""

from __future__ import annotations

from pydantic import Field, model_validator

from specdec.interfaces import ProposerConfig


class DraftModelConfig(ProposerConfig):
    """The draft model, and how its tokens are chosen.

    `num_speculative_tokens` counts nodes: with `tree_top_k` above 1 the depth of a draft is divided by it.
    """

    quantization: str | None = Field(
        default=None,
        description="What the draft's checkpoint is quantised with; only checked, as the checkpoint itself says it.",
    )
    parallel_drafting: bool = Field(
        default=False,
        description="Guess all tokens in one pass from mask tokens, as PARD models do (arXiv 2504.18583).",
    )
    dtype: str = Field(default="auto", description="Type of the draft's weights; `auto` for the target's.")
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
    use_heterogeneous_vocab: bool = Field(
        default=False,
        description="Draft only tokens that both vocabularies have (TLI, arXiv 2502.05202).",
    )

    @model_validator(mode="after")
    def _needs_a_model(self) -> DraftModelConfig:
        if self.model is None:
            raise ValueError("model is missing: the directory or hub id of the draft model, or 'zoo'")
        return self
