"""Loads a head from its checkpoint and the target."""

from __future__ import annotations

from specdec import ModelError
from specdec.interfaces import TargetHandle
from specdec_plugin_dflash.head import DFlashHead
from specdec_plugin_dflash.names import is_used, module_name, published_name
from specdec_plugin_dflash.settings import DFlashSettings
from specdec_plugin_dflash.variants import family_of
from specdec_runtime.drafting import HeadCheckpoint, embedding_of, published_by_module, target_ids_of
from specdec_runtime.drafting.head_parts import check_fit, check_num_layers, check_tensors, shared_projection

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
    size = settings.layer_config.vocab_size
    check_fit(checkpoint, target, settings.target_hidden_size, size)
    if settings.mask_id >= size:
        raise ModelError(
            f"{checkpoint}: the mask token is {settings.mask_id}, and the embedding has {size} ids: its config.json is damaged"
        )
    checkpoint.check_sizes(settings.layer_config.to_dict() | {"draft_vocab_size": settings.num_logits})
    if "fc.weight" in names:
        key, layers = "target_layer_ids", settings.aux_layers
        check_num_layers(checkpoint, names["fc.weight"], key, layers, target.info.hidden_size)
    width, projection = settings.layer_config.hidden_size, None
    if _PROJECTION not in names:
        projection = shared_projection(checkpoint, (settings.num_logits, width), target)
    embedding = embedding_of(checkpoint, names.get(_EMBEDDING), (size, width), target)
    head = DFlashHead(settings, embedding, projection)
    _fill(head, names, checkpoint, target)
    head.target_ids = target_ids_of(checkpoint, names.get("d2t"), settings.num_logits, target)
    return head


def _fill(head: DFlashHead, names: dict[str, str], checkpoint: HeadCheckpoint, target: TargetHandle) -> None:
    """Read all weights of a head's own modules, and move them to the target's device."""
    # The target's modules are shared, so none of their weights are read here.
    shared = {id(p) for module in (target.embed_tokens, target.lm_head) for p in module.parameters()}
    wanted = {n: p for n, p in head.named_parameters() if id(p) not in shared and n != _EMBEDDING}
    published = {name: published_name(name) for name in wanted}
    check_tensors(checkpoint, names, published, ("d2t", _EMBEDDING), "num_hidden_layers, attention_bias")
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
