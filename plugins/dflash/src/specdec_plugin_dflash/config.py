"""The configuration keys of `dflash`."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from specdec_drafting import DraftingConfig


class DFlashConfig(DraftingConfig):
    """The DFlash head, and how it drafts."""

    checkpoint: ClassVar[str | None] = "the head"

    parallel_drafting: bool = Field(
        default=True, description="Always true: the tokens of a block are guessed in one pass."
    )
    aux_layer_ids: tuple[int, ...] | None = Field(
        default=None,
        min_length=1,
        description="The target's layers whose inputs the head reads, where its `config.json` tells others; k is the input of "
        "layer k, which is the output of layer k - 1.",
    )
    mask_token_id: int | None = Field(
        default=None, ge=0, description="The mask token, where the head's `config.json` names none."
    )
