"""Writes heads in the published formats."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from specdec_plugin_eagle.heads import Eagle3Head, EagleHead
from specdec_plugin_eagle.names import published_name
from specdec_runtime.drafting.head_parts import write_head
from specdec_runtime.interfaces import DraftHead


def save_eagle(
    head: EagleHead,
    directory: Path,
    config: Mapping[str, Any],
    shared: Collection[str] = ("embed_tokens", "lm_head"),
) -> None:
    """Write an EAGLE-1 head in the published format: `fc.*` and `layers.0.*`.

    Args:
        head: the head, in the type it is stored in.
        directory: where `config.json` and `model.safetensors` go.
        config: the configuration it was made with.
        shared: names of its modules that are the target's, which are not written.
    """
    _write(head, directory, {"architectures": ["LlamaForCausalLMEagle"], **config}, shared, is_eagle3=False)


def save_eagle3(
    head: Eagle3Head,
    directory: Path,
    config: Mapping[str, Any],
    shared: Collection[str] = ("embed_tokens",),
) -> None:
    """Write an EAGLE-3 head in the published format: `midlayer.*`, `fc`, `norm`, `lm_head`, `d2t` and `t2d`.

    Args:
        head: the head, in the type it is stored in.
        directory: where `config.json` and `model.safetensors` go.
        config: the configuration it was made with.
        shared: names of its modules that are the target's, which are not written.
    """
    _write(head, directory, {"architectures": ["LlamaForCausalLMEagle3"], **config}, shared, is_eagle3=True)


def _write(
    head: DraftHead, directory: Path, config: Mapping[str, Any], shared: Collection[str], *, is_eagle3: bool
) -> None:
    own = {n: value for n, value in head.named_parameters() if n.partition(".")[0] not in shared}
    tensors = {published_name(name, is_eagle3=is_eagle3): value for name, value in own.items()}
    write_head(directory, tensors, config, head.target_ids, head.config.vocab_size)
