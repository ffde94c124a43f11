"""Finds and loads multi-token-prediction layers."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from transformers import PretrainedConfig

from specdec import ModelError
from specdec.interfaces import TargetHandle
from specdec_plugin_mtp.experts import read_weight
from specdec_plugin_mtp.head import MtpHead, MtpStage
from specdec_plugin_mtp.layouts import LAYOUTS, Layout, filled
from specdec_plugin_mtp.tensors import MtpTensors

_COUNTS = ("num_nextn_predict_layers", "mtp_num_hidden_layers")
_SHARED = ("embed_tokens.", "lm_head.")


def load_mtp(
    target: TargetHandle,
    tensors: MtpTensors,
    own_config: Mapping[str, object] | None = None,
    *,
    layout: Layout | None = None,
) -> MtpHead:
    """Return the head of a checkpoint, on the target's device and in its dtype, in evaluation mode.

    Args:
        target: the target, whose embedding and output projection are used if the layers have none.
        tensors: the checkpoint.
        own_config: `config.json` of a directory that holds only the layers; None to use the target's.
        layout: another one with the same names; None for the one that the names tell.

    Raises:
        ModelError: if the layers are missing, incomplete, quantised, or of an unknown kind.
    """
    config = target.config.get_text_config()
    named, first = find_layout(tensors, config)
    layout = layout or named
    num_layers = _num_layers(layout, first, tensors, config, own_config)
    prefixes = [filled(prefix, layer, first) for prefix in layout.prefixes for layer in range(num_layers)]
    tensors.check(prefixes)
    with torch.device("meta"):
        head = MtpHead(
            config,
            target.embed_tokens,
            target.lm_head,
            target.info.vocab_size,
            layout=layout,
            num_layers=num_layers,
            is_sparse=tensors.has_any(filled(layout.block, 0, first) + "mlp.experts."),
            has_join_bias=layout.published("join.bias", 0, first) in tensors.names,
        )
    for layer in range(num_layers):
        _fill(head.stage(layer), layout, layer, first, tensors, target)
    tensors.check_all_read(prefixes)
    assert not any(tensor.is_meta for tensor in (*head.parameters(), *head.buffers()))
    theirs = {id(p) for module in (target.embed_tokens, target.lm_head) for p in module.parameters()}
    for parameter in head.parameters():
        if id(parameter) not in theirs:
            parameter.requires_grad_(False)
    return head.to(target.info.device).eval()


def find_layout(tensors: MtpTensors, config: PretrainedConfig) -> tuple[Layout, int]:
    """Return the layout that matches the tensor names, and the number of the first layer (`{n}`).

    A directory that holds only the layers may number them from 0.

    Args:
        tensors: the checkpoint.
        config: the target's configuration.

    Raises:
        ModelError: if there are no layers of a kind that is known for this family of targets.
    """
    num_target_layers = config.num_hidden_layers
    for first in (num_target_layers, 0):
        for layout in LAYOUTS:
            if layout.published("join.weight", 0, first) in tensors.names:
                if config.model_type not in layout.model_types:
                    raise ModelError(
                        f"{tensors.place} (model_type {config.model_type!r}) has multi-token-prediction layers with the names "
                        f"of {layout.family}'s, which are known of {', '.join(layout.model_types)} only: what this family's "
                        "compute is not known here, take another method"
                    )
                return layout, first
    known = ", ".join(layout.published("join.weight", 0, num_target_layers) for layout in LAYOUTS)
    raise ModelError(
        f"{tensors.place} (model_type {config.model_type!r}) has no multi-token-prediction layers of a known kind, none of "
        f"{known}: take another method, or give 'model', a directory that has them"
    )


def _num_layers(
    layout: Layout,
    first: int,
    tensors: MtpTensors,
    config: PretrainedConfig,
    own_config: Mapping[str, object] | None,
) -> int:
    """Return the number of layers in the weights; it must match the configuration if that states a number."""
    found = 0
    while tensors.has_any(filled(layout.block, found, first)):
        found += 1
    if own_config is None:
        said = next((n for key in _COUNTS if (n := getattr(config, key, None))), None)
    else:
        said = next((n for key in _COUNTS if (n := own_config.get(key))), None)
    if said is not None and said != max(found, 1):
        raise ModelError(
            f"{tensors.place}: config.json says {said} multi-token-prediction layers, the weights have {found}: they do not "
            "belong together"
        )
    return max(found, 1)


def _fill(
    stage: MtpStage, layout: Layout, layer: int, first: int, tensors: MtpTensors, target: TargetHandle
) -> None:
    """Load the weights of a stage."""
    device, dtype = target.info.device, target.info.dtype
    buffers = {name for name, _ in stage.named_buffers()}
    found: dict[str, torch.Tensor] = {}
    for name, wanted in stage.state_dict().items():
        if name.startswith(_SHARED):
            continue
        weight = read_weight(tensors, layout.published(name, layer, first), wanted.shape)
        # Buffers, such as router biases, keep the precision they are created with.
        found[name] = weight.to(device, wanted.dtype if name in buffers else dtype)
    stage.load_state_dict(found, strict=False, assign=True)
    stage.embed_tokens = _own(stage.embed_tokens, layout, "embed_tokens", layer, first, tensors, target)
    stage.lm_head = _own(stage.lm_head, layout, "lm_head", layer, first, tensors, target)


def _own(
    shared: nn.Module,
    layout: Layout,
    part: str,
    layer: int,
    first: int,
    tensors: MtpTensors,
    target: TargetHandle,
) -> nn.Module:
    """Return a layer's own embedding or output projection, or the target's if the layer has none or an equal one."""
    if getattr(layout, part) is None:
        return shared
    name = layout.published(f"{part}.weight", layer, first)
    if name not in tensors.names:
        return shared
    info = target.info
    theirs = getattr(shared, "weight", None)
    wanted = theirs.shape if isinstance(theirs, torch.Tensor) else (info.vocab_size, info.hidden_size)
    weight = tensors.read(name, wanted).to(info.device, info.dtype)
    if isinstance(theirs, torch.Tensor) and torch.equal(weight, theirs):
        return shared
    with torch.device("meta"):
        own: nn.Module = (
            nn.Embedding(*weight.shape)
            if part == "embed_tokens"
            else nn.Linear(weight.shape[1], weight.shape[0], bias=False)
        )
    own.load_state_dict({"weight": weight}, assign=True)
    return own
