"""Configuration keys that all heads share."""

from __future__ import annotations

from pydantic import Field, model_validator

from specdec_runtime.drafting.drafting_config import DraftingConfig
from specdec_runtime.drafting.tree import children_of


class HeadConfig(DraftingConfig):
    """How a head's tokens are chosen: a chain by default, a tree with `tree_top_k` above 1 or `tree_choices`.

    `num_speculative_tokens` counts nodes.
    """

    tree_top_k: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Above 1 drafts are trees. Point masses: the best nodes of a tree that is expanded by joint confidence, "
        "this many nodes at each depth with this many children each (arXiv 2406.16858). Drawn tokens: this many candidates "
        "for each position, of which the first is continued.",
    )
    tree_depth: int | None = Field(
        default=None,
        ge=1,
        description="The deepest node of a tree; by default 5 for trees expanded by confidence.",
    )
    tree_choices: tuple[tuple[int, ...], ...] | None = Field(
        default=None,
        description="A static tree as paths of ranks, such as [[0], [1], [0, 0]]; a rank counts candidates from 0.",
    )

    @model_validator(mode="after")
    def _tree_is_one(self) -> HeadConfig:
        if self.tree_choices is not None:
            if not self.tree_choices:
                raise ValueError("tree_choices is empty: leave it out for a chain")
            try:
                children_of(self.tree_choices)
            except ValueError as error:
                raise ValueError(f"tree_choices: {error}") from None
            if len(set(self.tree_choices)) > self.num_speculative_tokens:
                raise ValueError(
                    f"tree_choices has {len(set(self.tree_choices))} nodes, num_speculative_tokens is "
                    f"{self.num_speculative_tokens}: raise it, or shorten the tree"
                )
            if self.tree_top_k > 1:
                raise ValueError("tree_choices and tree_top_k say different things: give one of them")
        if self.tree_depth is not None:
            if not self.is_tree:
                raise ValueError("tree_depth is for trees: leave it out, or give tree_top_k or tree_choices")
            if self.tree_choices is not None and max(map(len, self.tree_choices)) > self.tree_depth:
                raise ValueError("tree_choices has deeper paths than tree_depth: give one of them")
        if self.parallel_drafting and (self.tree_choices is not None or self.tree_top_k > 1):
            raise ValueError("parallel_drafting drafts chains: leave tree_choices and tree_top_k out")
        return self

    @property
    def is_tree(self) -> bool:
        """Whether drafts are trees."""
        return self.tree_top_k > 1 or self.tree_choices is not None

    @property
    def has_confidence(self) -> bool:
        """Whether drafts have the confidence in their nodes."""
        return self.draft_confidence_threshold > 0 or self.is_dynamic

    @property
    def is_dynamic(self) -> bool:
        """Whether trees are expanded by confidence. Sampled tokens must not be chosen among, so their trees are static."""
        return self.tree_top_k > 1 and self.draft_sample_method != "probabilistic"
