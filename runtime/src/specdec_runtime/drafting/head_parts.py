"""Parts that heads share with the target, or have of their own, and how they are read from files and written."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from specdec import ModelError
from specdec.interfaces import TargetHandle
from specdec_runtime.drafting.checkpoint import HeadCheckpoint


def published_by_module(
    checkpoint: HeadCheckpoint, module_name: Callable[[str], str], is_used: Callable[[str], bool]
) -> dict[str, str]:
    """Return the published name of each tensor that is used, by its name in the module.

    Args:
        checkpoint: files of the head.
        module_name: returns the name in the module of a published one.
        is_used: whether a published tensor is part of the head, and not left by training.

    Raises:
        ModelError: if two tensors are the same part.
    """
    names: dict[str, str] = {}
    for name in filter(is_used, checkpoint.names()):
        other = names.setdefault(module_name(name), name)
        if other != name:
            raise ModelError(
                f"{checkpoint}: tensors {other!r} and {name!r} are the same part of the head: leave one of them there"
            )
    return names


def check_fit(checkpoint: HeadCheckpoint, target: TargetHandle, hidden_size: int, vocab_size: int) -> None:
    """Refuse a head of another target.

    Args:
        checkpoint: files of the head.
        target: the target.
        hidden_size: width of the states that the head reads.
        vocab_size: V of its embedding.

    Raises:
        ModelError: naming the size that differs.
    """
    info = target.info
    if hidden_size != info.hidden_size:
        raise ModelError(
            f"{checkpoint}: the head reads states {hidden_size} wide, the target's are {info.hidden_size}: it is a head of "
            "another target"
        )
    if vocab_size != info.vocab_size:
        raise ModelError(
            f"{checkpoint}: the head knows {vocab_size} ids, the target has {info.vocab_size}: it is a head of another target, "
            "or for another version of its tokenizer"
        )


def check_tensors(
    checkpoint: HeadCheckpoint,
    names: Mapping[str, str],
    wanted: Mapping[str, str],
    others: Collection[str],
    keys: str,
) -> None:
    """Refuse files that lack a part of a head, or have one that it has no place for.

    Args:
        checkpoint: files of the head.
        names: published name of each tensor there, by its name in the module.
        wanted: published name of each parameter that is read, by its name in the module.
        others: names in the module of tensors that are read elsewhere.
        keys: the keys of `config.json` that say which parts there are.

    Raises:
        ModelError: naming the tensors.
    """
    unknown = [names[name] for name in sorted(names.keys() - wanted.keys() - set(others))]
    missing = [repr(shown) for name, shown in wanted.items() if name not in names]
    if missing:
        beside = f" (what it has without a place here: {', '.join(unknown[:3])})" if unknown else ""
        raise ModelError(
            f"{checkpoint} has no tensor for {', '.join(missing[:3])}: its config.json does not belong to these weights, or "
            f"they are incomplete{beside}"
        )
    if unknown:
        raise ModelError(
            f"{checkpoint}: tensor {unknown[0]!r} has no place in this head: config.json does not say what it is for ({keys}), "
            "or it is of another method"
        )


def shared_projection(checkpoint: HeadCheckpoint, shape: tuple[int, int], target: TargetHandle) -> nn.Module:
    """Return the target's output projection, for a head whose files have none.

    Args:
        checkpoint: files of the head.
        shape: V and H of the head.
        target: the target.

    Raises:
        ModelError: if the target's has another shape.
    """
    if shape != (target.info.vocab_size, target.info.hidden_size):
        raise ModelError(
            f"{checkpoint} has no lm_head.weight, and the target's projection has another shape: fetch the head again"
        )
    return target.lm_head


def write_head(
    directory: Path,
    tensors: Mapping[str, torch.Tensor],
    config: Mapping[str, Any],
    target_ids: torch.Tensor | None,
    vocab_size: int,
) -> None:
    """Write a head in the published format, to `config.json` and `model.safetensors`.

    Args:
        directory: where; made if it is not there.
        tensors: the head's, by published name, in the type they are stored in.
        config: the configuration it was made with.
        target_ids: the target's id `[V']` of each logit, written as `d2t` and `t2d`; None if they are the same.
        vocab_size: V of the target.
    """
    stored = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    dtype = next(value.dtype for value in stored.values() if value.is_floating_point())
    if target_ids is not None:
        ids = target_ids.cpu()
        stored["d2t"] = ids - torch.arange(len(ids))
        stored["t2d"] = torch.zeros(vocab_size, dtype=torch.bool).index_fill(0, ids, True)
    directory.mkdir(parents=True, exist_ok=True)
    described = {**config, "torch_dtype": str(dtype).removeprefix("torch.")}
    (directory / "config.json").write_text(json.dumps(described, indent=2, sort_keys=True) + "\n")
    save_file(stored, directory / "model.safetensors", metadata={"format": "pt"})


def check_num_layers(
    checkpoint: HeadCheckpoint, name: str, key: str, layer_ids: Sequence[object], hidden_size: int
) -> None:
    """Refuse a number of the target's layers that the projection of their states is not for.

    Args:
        checkpoint: files of the head.
        name: name of the projection's weight `[H, num_layers * hidden_size]` there.
        key: the key of `config.json` that names the layers.
        layer_ids: the layers.
        hidden_size: width of the target's states.

    Raises:
        ModelError: naming the key, the layers and how many there have to be.
    """
    shape, width = list(checkpoint.shape(name)), len(layer_ids) * hidden_size
    if shape[1:] != [width]:
        layer_names = ", ".join(map(str, layer_ids))
        raise ModelError(
            f"{checkpoint}: tensor {name!r} has shape {shape} instead of {[*shape[:1], width]}: config.json does not belong to "
            f"these weights, or names another number of the target's layers than they are for ({key}: [{layer_names}]): give "
            "aux_layer_ids in speculative_config"
        )


def embedding_of(
    checkpoint: HeadCheckpoint, name: str | None, shape: tuple[int, int], target: TargetHandle
) -> nn.Module:
    """Return the target's embedding, or a head's own where its file has another one.

    Args:
        checkpoint: files of the head.
        name: name of the embedding there; None if there is none.
        shape: V and H of the head.
        target: the target.

    Raises:
        ModelError: if the head has none and the target's has another width.
    """
    if name is None:
        if shape[1] != target.info.hidden_size:
            raise ModelError(
                f"{checkpoint} has no embed_tokens.weight, and the target's embedding is {target.info.hidden_size} wide, "
                f"the head {shape[1]}: it is a head of another target"
            )
        return target.embed_tokens
    own = checkpoint.read(name, shape)
    shared = getattr(target.embed_tokens, "weight", None)
    if (
        isinstance(shared, torch.Tensor)
        and shared.shape == own.shape
        and torch.equal(own.to(shared.device, shared.dtype), shared)
    ):
        return target.embed_tokens
    embedding = nn.Embedding(*own.shape)
    embedding.weight.data = own
    return embedding


def target_ids_of(
    checkpoint: HeadCheckpoint, name: str | None, num_logits: int, target: TargetHandle
) -> torch.Tensor | None:
    """Return the target's id `[V']` of each logit of a head; None if they are the same.

    Args:
        checkpoint: files of the head.
        name: name of the tensor there that holds the offsets to add to the draft's ids; None if there is none.
        num_logits: V'.
        target: the target.

    Raises:
        ModelError: if the ids are missing, or are not different ids of the target.
    """
    size = target.info.vocab_size
    if name is None:
        if num_logits != size:
            raise ModelError(
                f"{checkpoint} has no d2t, but {num_logits} logits for the target's {size} ids: without it the target ids of "
                "its logits are unknown"
            )
        return None
    offsets = checkpoint.read(name, (num_logits,)).long()
    ids = torch.arange(num_logits) + offsets
    outside = ids[(ids < 0) | (ids >= size)]
    if len(outside):
        raise ModelError(
            f"{checkpoint}: d2t leads to id {int(outside[0])}, the target has {size}: it is a head of another target"
        )
    if len(ids.unique()) != len(ids):
        raise ModelError(f"{checkpoint}: d2t gives two logits the same id: the file is damaged")
    if num_logits == size and bool((offsets == 0).all()):
        return None
    return ids.to(target.info.device)
