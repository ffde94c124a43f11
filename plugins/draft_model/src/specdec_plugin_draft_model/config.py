"""The configuration keys of `draft_model`."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from specdec.config import Checkpoint, TargetFacts
from specdec_plugin_draft_model.fit import check_context, check_vocabulary
from specdec_runtime.drafting import DraftingConfig


class DraftModelConfig(DraftingConfig):
    """The draft model, and how its tokens are chosen.

    `num_speculative_tokens` counts nodes: with `tree_top_k` above 1 the depth of a draft is divided by it.
    """

    checkpoint: ClassVar[str | None] = "the draft model"

    quantization: str | None = Field(
        default=None,
        description="What the draft's checkpoint is quantised with; only checked, as the checkpoint itself says it.",
    )
    parallel_drafting: bool = Field(
        default=False,
        description="Guess all tokens in one pass from mask tokens, as PARD models do (arXiv 2504.18583).",
    )
    dtype: str = Field(default="auto", description="Type of the draft's weights; `auto` for the target's.")
    use_heterogeneous_vocab: bool = Field(
        default=False,
        description="Draft only tokens that both vocabularies have (TLI, arXiv 2502.05202).",
    )

    def check_fit(self, target: TargetFacts | None) -> None:
        """Check, before weights are loaded, that the draft fits the target."""
        if self.model is None:
            return
        draft = Checkpoint(self.model, self.revision)
        check_context(draft, self.max_model_len)
        if target is not None and not self.use_heterogeneous_vocab:
            check_vocabulary(draft, target)
