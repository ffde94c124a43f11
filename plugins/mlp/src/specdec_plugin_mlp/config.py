"""The configuration keys that both methods share."""

from __future__ import annotations

from typing import ClassVar

from specdec_runtime.drafting import DraftingConfig


class StateHeadsConfig(DraftingConfig):
    """The draft heads, and how their tokens are chosen.

    `num_speculative_tokens` counts nodes: with `tree_top_k` above 1 the depth of a draft is divided by it.
    """

    checkpoint: ClassVar[str | None] = "the heads"
