"""Loads a head from its checkpoint and the target."""

from __future__ import annotations

from torch import nn

from specdec import ModelError
from specdec.interfaces import TargetHandle
from specdec_plugin_dflash.head import DFlashHead
from specdec_plugin_dflash.names import is_used, module_name, published_name
from specdec_plugin_dflash.settings import DFlashSettings
from specdec_plugin_dflash.variants import family_of
from specdec_runtime.drafting import HeadCheckpoint, embedding_of, published_by_module, target_ids_of
from specdec_runtime.drafting.head_parts import check_num_layers

_EMBEDDING, _PROJECTION = "model.model.embed_tokens.weight", "model.lm_head.weight"


def load_dflash(checkpoint: HeadCheckpoint, target: TargetHandle, settings: DFlashSettings) -> DFlashHead:
    """Return a head on the target's device and in its dtype, in evaluation mode.

    Args:
        checkpoint: its files.
        target: the target.
        settings: those of its `config.json`, or others.

    Raises:
        ModelError: if files are missing or damaged, or do not match each other or the target, or are another method's.
    """
    family_of(checkpoint.config, checkpoint.names(), str(checkpoint))
    names = published_by_module(checkpoint, module_name, is_used)
    _check_target(settings, checkpoint, target)
    checkpoint.check_sizes(settings.layer_config.to_dict() | {"draft_vocab_size": settings.num_logits})
    if "fc.weight" in names:
        key, width = "target_layer_ids", target.info.hidden_size
        check_num_layers(checkpoint, names["fc.weight"], key, settings.aux_layers, width)
    shape = (settings.layer_config.vocab_size, settings.layer_config.hidden_size)
    head = DFlashHead(
        settings,
        embedding_of(checkpoint, names.get(_EMBEDDING), shape, target),
        _shared_projection(settings, names, checkpoint, target),
    )
    _fill(head, names, checkpoint, target)
    head.target_ids = target_ids_of(checkpoint, names.get("d2t"), settings.num_logits, target)
    return head


def _check_target(settings: DFlashSettings, checkpoint: HeadCheckpoint, target: TargetHandle) -> None:
    info = target.info
    if settings.target_hidden_size != info.hidden_size:
        raise ModelError(
            f"{checkpoint}: the head reads states {settings.target_hidden_size} wide, the target's are "
            f"{info.hidden_size}: it is a head of another target"
        )
    size = settings.layer_config.vocab_size
    if size != info.vocab_size:
        raise ModelError(
            f"{checkpoint}: the head knows {size} ids, the target has {info.vocab_size}: it is a head of another target, or "
            "for another version of its tokenizer"
        )
    if settings.mask_id >= size:
        raise ModelError(
            f"{checkpoint}: the mask token is {settings.mask_id}, and the embedding has {size} ids: its config.json is damaged"
        )


def _shared_projection(
    settings: DFlashSettings, names: dict[str, str], checkpoint: HeadCheckpoint, target: TargetHandle
) -> nn.Module | None:
    """Return the target's output projection if the file has none, which requires the same width and vocabulary."""
    if _PROJECTION in names:
        return None
    shape = (target.info.vocab_size, target.info.hidden_size)
    if (settings.num_logits, settings.layer_config.hidden_size) != shape:
        raise ModelError(
            f"{checkpoint} has no lm_head.weight, and the target's projection has another shape: fetch the head again"
        )
    return target.lm_head


def _fill(head: DFlashHead, names: dict[str, str], checkpoint: HeadCheckpoint, target: TargetHandle) -> None:
    """Read all weights of a head's own modules, and move them to the target's device."""
    # The target's modules are shared, so none of their weights are read here.
    shared = {id(p) for module in (target.embed_tokens, target.lm_head) for p in module.parameters()}
    wanted = {n: p for n, p in head.named_parameters() if id(p) not in shared and n != _EMBEDDING}
    unknown = [names[name] for name in sorted(set(names) - set(wanted) - {"d2t", _EMBEDDING})]
    missing = [name for name in wanted if name not in names]
    if missing:
        others = f" (what it has without a place here: {', '.join(unknown[:3])})" if unknown else ""
        shown = ", ".join(repr(published_name(name)) for name in missing[:3])
        raise ModelError(
            f"{checkpoint} has no tensor for {shown}: its config.json does not belong to these weights, or they are incomplete"
            f"{others}"
        )
    if unknown:
        raise ModelError(
            f"{checkpoint}: tensor {unknown[0]!r} has no place in this head: config.json does not say what it is for "
            "(num_hidden_layers, attention_bias), or it is of another method"
        )
    # The rotary frequencies, which are no parameters, stay in float32.
    place = target.info.device, target.info.dtype
    read = {
        name: checkpoint.read(names[name], tuple(parameter.shape)).to(*place)
        for name, parameter in wanted.items()
    }
    head.load_state_dict(read, strict=False, assign=True)
    embedding = head.model.get_input_embeddings()
    if embedding is not target.embed_tokens:
        embedding.to(*place)
    for parameter in head.parameters():
        if id(parameter) not in shared:
            parameter.requires_grad_(False)
    head.model.model.rotary_emb.to(target.info.device)
    head.eval()
