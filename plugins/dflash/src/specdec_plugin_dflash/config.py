"""The configuration keys of `dflash`."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from specdec_runtime.drafting import AuxLayersConfig


class DFlashConfig(AuxLayersConfig):
    """The DFlash head, and how it drafts."""

    checkpoint: ClassVar[str | None] = "the head"

    parallel_drafting: bool = Field(
        default=True, description="Always true: the tokens of a block are guessed in one pass."
    )
    sample_from_anchor: bool | None = Field(
        default=None,
        description="Whether the row of the last committed token predicts, so that a block has one guess more; None for what "
        "the head's `config.json` says.",
    )
