"""Loads an assistant with the class that `transformers` has for it, and checks that it fits the target."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import transformers

from specdec import ConfigError, ModelError
from specdec.config import Checkpoint
from specdec.interfaces import TargetHandle
from specdec_plugin_mtp.assistant.assistant import Assistant
from specdec_runtime.backends import speed_up_linears
from specdec_runtime.drafting import HeadCheckpoint
from specdec_runtime.interfaces import CacheReader
from specdec_runtime.loading import check_rope
from specdec_runtime.models import unfilled

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

MODEL_TYPES = ("gemma4_assistant", "gemma4_unified_assistant")
_TARGETS = ("gemma4_text", "gemma4_unified_text")


def is_assistant(path: str | None, revision: str | None = None) -> bool:
    """Return whether the `config.json` of a directory or hub id is an assistant's."""
    return path is not None and (Checkpoint(path, revision).config or {}).get("model_type") in MODEL_TYPES


def load_assistant(checkpoint: HeadCheckpoint, target: TargetHandle, max_len: int) -> Assistant:
    """Return the assistant of a checkpoint, on the target's device and in its dtype.

    Args:
        checkpoint: its files.
        target: the target.
        max_len: number of tokens after which nothing is drafted.

    Raises:
        ModelError: if its files are damaged, quantised or of another kind.
        ConfigError: if it was made for another target, or if the target's cache is not lent.
    """
    checkpoint.names()  # for its errors: what is read are safetensors, and all of them are there
    config = _config_of(checkpoint)
    text = config.get_text_config()
    layers = _layers(checkpoint, config, target)
    check_rope(text, max_len, str(checkpoint))
    reader: CacheReader = target.make_cache_reader()
    for number, kind in enumerate(text.layer_types):
        _check_shape(checkpoint, text.per_layer_config[number], reader, layers[kind])
    model = _load(checkpoint, config, target)
    ordering = getattr(model.masked_embedding, "token_ordering", None)
    if ordering is not None and not torch.equal(ordering.sort().values.cpu(), torch.arange(len(ordering))):
        raise ModelError(
            f"{checkpoint}: 'masked_embedding.token_ordering' does not name every id once: fetch the files again"
        )
    speed_up_linears(model)
    return Assistant(model, target.embed_tokens, reader, layers)


def _config_of(checkpoint: HeadCheckpoint) -> PretrainedConfig:
    try:
        config: PretrainedConfig = transformers.AutoConfig.from_pretrained(checkpoint.directory)
    except Exception as error:  # the library's checks of fields raise errors of many types
        raise ModelError(f"cannot read the configuration of {checkpoint}: {error}") from error
    if getattr(config, "quantization_config", None):
        raise ModelError(f"{checkpoint} is quantised: give the assistant in bfloat16 or float32")
    return config


def _layers(checkpoint: HeadCheckpoint, config: PretrainedConfig, target: TargetHandle) -> dict[str, int]:
    """Return by type of layer the target's layer whose keys and values are read: the last one that has its own."""
    theirs, ours, info = target.config.get_text_config(), config.get_text_config(), target.info
    if theirs.model_type not in _TARGETS:
        raise ConfigError(
            f"speculative_config: {checkpoint} reads the keys and values of a Gemma 4 target, and this target's model_type is "
            f"{theirs.model_type!r}: take a draft that was made for it"
        )
    for name, own, wanted in (
        ("backbone_hidden_size", config.backbone_hidden_size, info.hidden_size),
        ("vocab_size", ours.vocab_size, info.vocab_size),
    ):
        if own != wanted:
            raise ConfigError(
                f"speculative_config: {checkpoint} is an assistant of another target: its {name} is {own}, this target's is "
                f"{wanted}"
            )
    with_own = theirs.layer_types[: len(theirs.layer_types) - theirs.num_kv_shared_layers]
    layers = {kind: number for number, kind in enumerate(with_own)}
    lacking = [kind for kind in ours.layer_types if kind not in layers]
    if lacking:
        raise ConfigError(
            f"speculative_config: {checkpoint} is an assistant of another target: it has layers of type {lacking[0]!r}, and "
            f"this target caches keys and values of {', '.join(map(repr, layers))} only"
        )
    return {kind: layers[kind] for kind in dict.fromkeys(ours.layer_types)}


def _check_shape(
    checkpoint: HeadCheckpoint, layer: PretrainedConfig, reader: CacheReader, theirs: int
) -> None:
    shape = reader.shape(theirs)
    own, wanted = (layer.num_key_value_heads, layer.head_dim), (shape.num_kv_heads, shape.key_dim)
    if own != wanted:
        raise ConfigError(
            f"speculative_config: {checkpoint} is an assistant of another target: it reads {own[0]} heads of {own[1]} numbers "
            f"where this target's layer {theirs} has {wanted[0]} of {wanted[1]}"
        )


def _load(checkpoint: HeadCheckpoint, config: PretrainedConfig, target: TargetHandle) -> PreTrainedModel:
    info = target.info
    arguments: dict[str, Any] = {} if info.device.type == "cpu" else {"device_map": {"": info.device}}
    try:
        with _all_shared(type(config.get_text_config())):
            loaded: Any = transformers.AutoModelForCausalLM.from_pretrained(
                checkpoint.directory,
                config=config,
                dtype=info.dtype,
                attn_implementation="sdpa",
                use_safetensors=True,
                ignore_mismatched_sizes=True,  # named by `unfilled`
                output_loading_info=True,
                **arguments,
            )
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # the libraries raise errors of many types
        raise ModelError(f"cannot load {checkpoint}: {error}") from error
    model, report = loaded
    if (complaint := unfilled(report, model)) is not None:
        raise ModelError(f"{checkpoint}: {complaint}")
    ready: PreTrainedModel = model.eval().requires_grad_(False)
    return ready


@contextmanager
def _all_shared(kind: Any) -> Iterator[None]:
    """Let layers be made that all use the target's keys and values, which `transformers` 5.20 to 5.23 refuse to make."""
    own = getattr(kind, "kv_sharing_modes", None)
    if not isinstance(own, property) or own.fget is None:
        yield
        return
    modes = own.fget

    def shared(config: Any) -> Any:
        count = config.num_hidden_layers
        return ["reuse"] * count if config.num_kv_shared_layers == count else modes(config)

    kind.kv_sharing_modes = property(shared)
    try:
        yield
    finally:
        kind.kv_sharing_modes = own
