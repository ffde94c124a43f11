"""Writes heads in the published format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specdec_plugin_dflash.head import DFlashHead
from specdec_plugin_dflash.names import published_name
from specdec_runtime.drafting.head_parts import write_head


def save_dflash(head: DFlashHead, directory: Path, config: Mapping[str, Any]) -> None:
    """Write a head in the published format: `fc`, `hidden_norm`, `layers.*`, `norm`, and for a reduced vocabulary `lm_head`
    and `d2t`.

    Args:
        head: the head, in the type it is stored in; its embedding is the target's, and so is its output projection if it can
            draft all ids.
        directory: where `config.json` and `model.safetensors` go.
        config: the configuration it was made with.
    """
    shared = ("model.model.embed_tokens.",) + (("model.lm_head.",) if head.target_ids is None else ())
    own = {n: value for n, value in head.named_parameters() if not n.startswith(shared)}
    tensors = {published_name(name): value for name, value in own.items()}
    described = {"architectures": ["DFlashDraftModel"], **config}
    write_head(directory, tensors, described, head.target_ids, head.settings.layer_config.vocab_size)
