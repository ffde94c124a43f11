"""Loads a head from its checkpoint and the target."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from torch import nn

from specdec import ModelError
from specdec.interfaces import TargetHandle
from specdec_plugin_eagle.aux_layers import KEY
from specdec_plugin_eagle.heads import Eagle3Head, EagleHead
from specdec_plugin_eagle.names import is_used, module_name
from specdec_plugin_eagle.settings import EagleSettings
from specdec_runtime.drafting import HeadCheckpoint, embedding_of, published_by_module, target_ids_of
from specdec_runtime.drafting.head_parts import check_fit, check_num_layers, check_tensors, shared_projection


def load_eagle(
    checkpoint: HeadCheckpoint, target: TargetHandle, settings: EagleSettings | None = None
) -> EagleHead:
    """Return an EAGLE-1 or EAGLE-2 head.

    Args:
        checkpoint: its files.
        target: the target.
        settings: others than those of its `config.json`.

    Raises:
        ModelError: if files are missing or damaged, or do not match each other or the target.
    """
    if settings is None:
        settings = EagleSettings.from_dict(checkpoint.config, str(checkpoint), is_eagle3=False)
    names = published_by_module(checkpoint, module_name, is_used)
    check_fit(checkpoint, target, settings.target_hidden_size, settings.layer_config.vocab_size)
    checkpoint.check_sizes(settings.layer_config.to_dict())
    if settings.layer_config.hidden_size != target.info.hidden_size:
        raise ModelError(
            f"{checkpoint}: the head is {settings.layer_config.hidden_size} wide, the target {target.info.hidden_size}: an "
            "EAGLE-1 head puts its own state in the place of the target's, so it is a head of another target"
        )
    head = EagleHead(
        settings,
        _embedding(settings, names, checkpoint, target),
        _own_linear(settings, names, checkpoint) or target.lm_head,
        has_fc_bias="fc.bias" in names,
    )
    _fill(head, names, checkpoint, target, optional=())
    return head


def load_eagle3(
    checkpoint: HeadCheckpoint, target: TargetHandle, settings: EagleSettings, *, is_parallel: bool
) -> Eagle3Head:
    """Return an EAGLE-3 head; see `load_eagle`.

    Args:
        checkpoint: its files.
        target: the target.
        settings: those of its `config.json`, or others.
        is_parallel: whether it is used for parallel drafting, which needs a mask token and its feature.
    """
    names = published_by_module(checkpoint, module_name, is_used)
    settings = _with_biases(settings, names)
    check_fit(checkpoint, target, settings.target_hidden_size, settings.layer_config.vocab_size)
    checkpoint.check_sizes(settings.layer_config.to_dict() | {"draft_vocab_size": settings.num_logits})
    if settings.uses_aux and "fc.weight" in names:
        read = (2, "L / 2", "L - 3") if settings.aux_layers is None else settings.aux_layers.ids
        check_num_layers(checkpoint, names["fc.weight"], KEY, read, target.info.hidden_size)
    has_mask = "mask_hidden" in names
    if is_parallel and (settings.mask_id is None or not has_mask):
        missing = (
            "mask_hidden in its weights"
            if not has_mask
            else "mask_token_id, pard_token or ptd_token_id in its config.json, or mask_token_id in speculative_config"
        )
        raise ModelError(
            f"{checkpoint}: parallel_drafting needs {missing}: if the head was not trained for it, leave it out"
        )
    if (
        is_parallel
        and settings.mask_id is not None
        and not 0 <= settings.mask_id < settings.layer_config.vocab_size
    ):
        raise ModelError(
            f"{checkpoint}: the mask token is {settings.mask_id}, and the embedding has {settings.layer_config.vocab_size} "
            "ids: its config.json is damaged"
        )
    head = Eagle3Head(settings, _embedding(settings, names, checkpoint, target), has_mask_feature=has_mask)
    is_shared = "lm_head.weight" not in names
    if is_shared:
        shape = settings.num_logits, settings.layer_config.hidden_size
        head.lm_head = shared_projection(checkpoint, shape, target)  # type: ignore[assignment]  # a module that maps states to logits
    _fill(head, names, checkpoint, target, optional=("lm_head.weight",) if is_shared else ())
    head.target_ids = target_ids_of(checkpoint, names.get("d2t"), settings.num_logits, target)
    if is_parallel and head.mask_hidden is not None:
        head.mask_id = settings.mask_id
        with torch.inference_mode():
            head.mask_feature = head.fuse(head.mask_hidden.chunk(settings.num_states, -1))[0]
    return head


def _with_biases(settings: EagleSettings, names: dict[str, str]) -> EagleSettings:
    """Return settings without biases of attention if the file has none: SpecForge copies the target's `attention_bias`."""
    if not getattr(settings.layer_config, "attention_bias", False) or any("_proj.bias" in n for n in names):
        return settings
    config = copy.deepcopy(settings.layer_config)
    config.attention_bias = False
    return replace(settings, layer_config=config)


def _embedding(
    settings: EagleSettings, names: dict[str, str], checkpoint: HeadCheckpoint, target: TargetHandle
) -> nn.Module:
    layer = settings.layer_config
    return embedding_of(
        checkpoint, names.get("embed_tokens.weight"), (layer.vocab_size, layer.hidden_size), target
    )


def _own_linear(
    settings: EagleSettings, names: dict[str, str], checkpoint: HeadCheckpoint
) -> nn.Linear | None:
    published = names.get("lm_head.weight")
    if published is None:
        return None
    weight = checkpoint.read(published, (settings.num_logits, settings.layer_config.hidden_size))
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    linear.weight.data = weight
    return linear


def _fill(
    head: EagleHead | Eagle3Head,
    names: dict[str, str],
    checkpoint: HeadCheckpoint,
    target: TargetHandle,
    optional: tuple[str, ...],
) -> None:
    """Read all weights of a head's own modules, and move them to the target's device."""
    # The target's modules are shared, so none of their weights are read here.
    shared = {"embed_tokens", "lm_head"} if isinstance(head, EagleHead) else {"embed_tokens"}
    elsewhere = {f"{module}.weight" for module in shared} | {"d2t", *optional}
    wanted = {
        n: p for n, p in head.named_parameters() if n.partition(".")[0] not in shared and n not in optional
    }
    keys = "norm_before_fc, fc_norm, add_para_norm, num_hidden_layers, attention_bias"
    check_tensors(checkpoint, names, {name: name.removeprefix("body.") for name in wanted}, elsewhere, keys)
    with torch.no_grad():
        for name, parameter in wanted.items():
            shape = tuple(parameter.shape)
            if (
                name == "mask_hidden" and len(checkpoint.shape(names[name])) == 3
            ):  # as speculators and SpecForge write it
                shape = (1, *shape)
            parameter.data = checkpoint.read(names[name], shape).to(torch.float32).view(parameter.shape)
    for module in head.children():
        if module is not target.embed_tokens and module is not target.lm_head:
            module.to(target.info.device).requires_grad_(False)
            for parameter in module.parameters():  # not the rotary frequencies, which stay in float32
                parameter.data = parameter.data.to(target.info.dtype)
    for name, parameter in list(head.named_parameters(recurse=False)):
        setattr(head, name, nn.Parameter(parameter.to(target.info.device), requires_grad=False))
    if head.config.get_text_config().vocab_size == 1:
        head.config.vocab_size = target.info.vocab_size
    head.eval()
