"""The configuration keys of `eagle` and `eagle3`."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from specdec_runtime.drafting import AuxLayersConfig, HeadConfig


class EagleConfig(HeadConfig):
    """The EAGLE-1 or EAGLE-2 head and how it drafts; with `tree_top_k` above 1 in trees as in EAGLE-2 (arXiv 2406.16858)."""

    checkpoint: ClassVar[str | None] = "the head"


class Eagle3Config(EagleConfig, AuxLayersConfig):
    """The EAGLE-3 head, and how it drafts."""

    parallel_drafting: bool = Field(
        default=False,
        description="Guess all tokens in one pass from mask tokens, with heads trained for it (P-EAGLE).",
    )
    norm_output: bool | None = Field(
        default=None,
        description="Whether the next token's state is taken after the final norm, where `config.json` tells wrongly: "
        "heads that SpecForge wrote with `norm_output` before 15 September 2026 were trained without.",
    )
