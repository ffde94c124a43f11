"""Configuration keys of heads that read states of several of the target's layers."""

from __future__ import annotations

from pydantic import Field

from specdec_runtime.drafting.drafting_config import DraftingConfig


class AuxLayersConfig(DraftingConfig):
    """What a head's `config.json` may leave open: the layers it reads, and the token of unknown positions."""

    aux_layer_ids: tuple[int, ...] | None = Field(
        default=None,
        min_length=1,
        description="The target's layers whose inputs the head reads, where its `config.json` tells others or none; k is the "
        "input of layer k, which is the output of layer k - 1.",
    )
    mask_token_id: int | None = Field(
        default=None, ge=0, description="The mask token, where the head's `config.json` names none."
    )
