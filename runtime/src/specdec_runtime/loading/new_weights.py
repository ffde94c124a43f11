"""New weights for a model that is loaded: read, checked as a whole, then written in place of the old ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from specdec import EngineOptions
from specdec.config import Checkpoint, locate
from specdec.errors import ConfigError
from specdec.interfaces import Weights
from specdec_runtime.gguf.without_bars import without_bars
from specdec_runtime.loading.causal import first_line, load_checkpoint
from specdec_runtime.models import has_blocks

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Tensors = Mapping[str, torch.Tensor]

_WITHOUT_EFFECT = frozenset({"architectures", "transformers_version", "dtype", "torch_dtype", "use_cache"})
"""Keys of `config.json` that change no logits; likewise dropout and the ids of special tokens."""


def read_weights(
    weights: Weights, model: PreTrainedModel, options: EngineOptions
) -> tuple[Tensors, Path | None]:
    """Return weights by the names that a model has for them, and the folder of their checkpoint, if they have one.

    `checked_weights` checks them.

    Args:
        weights: see `LLM.update_weights`.
        model: the model, which is not changed.
        options: those with which it was loaded.

    Raises:
        ConfigError: for weights of another kind of model.
        ModelError: if a checkpoint cannot be read.
    """
    is_narrow = has_blocks(model)
    if not is_narrow and getattr(model, "hf_quantizer", None) is not None:
        raise ConfigError(
            "LLM.update_weights: the target's weights are quantised: load it with float weights"
        )
    if isinstance(weights, str | Path):
        kept = {"weights": options.weights} if is_narrow else {"weights": "widen", "dtype": model.dtype}
        revision = options.revision if options.model == str(weights) else None
        found = locate(replace(options, model=str(weights), revision=revision, gguf_file=None, **kept))
        other = load_checkpoint(str(found.model), replace(found, device="cpu"), torch.device("cpu"))
        if is_narrow and not has_blocks(other):
            raise ConfigError(_not_blocks(f"those of {str(weights)!r} are not"))
        _check_config(str(weights), other.config.to_dict(), model.config.to_dict())
        config = Checkpoint(str(found.model), found.revision).file("config.json")
        return other.state_dict(), None if config is None else config.parent
    if is_narrow:
        raise ConfigError(_not_blocks("tensors were given"))
    given: dict[str, torch.Tensor] = {}
    for name, tensor in _pairs(weights):
        if name in given:
            raise ConfigError(f"LLM.update_weights: {name!r} is there twice")
        given[name] = _plain(name, tensor)
    return given if given.keys() <= model.state_dict().keys() else _renamed(given, model), None


def checked_weights(model: nn.Module, new: Tensors) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return the model's tensors that `write_weights` writes, each with its new numbers.

    Raises:
        ConfigError: naming the tensor.
    """
    own = model.state_dict(keep_vars=True)
    for name in new.keys() - own.keys():
        raise ConfigError(f"LLM.update_weights: the model has no {name!r}{_nearest(name, own)}")
    of_tensor: dict[int, str] = {}
    """By the number of an own tensor, the first of its names that has a new one."""
    for name in own:
        if name in new:
            first = of_tensor.setdefault(id(own[name]), name)
            _check(name, new[name], own[name])
            if first != name and not _are_equal(new[first], new[name]):
                raise ConfigError(
                    f"LLM.update_weights: {name!r} and {first!r} differ, and this model has them as one tensor"
                )
    for name in own:
        if id(own[name]) not in of_tensor:
            raise ConfigError(
                f"LLM.update_weights: {name!r} is missing{_nearest(name, new)}: give all tensors"
            )
    memory = {tensor.untyped_storage().data_ptr() for tensor in own.values()}
    ready = []
    for name in of_tensor.values():
        is_own, tensor = new[name].untyped_storage().data_ptr() in memory, new[name]
        if not is_own or tensor.data_ptr() != own[name].data_ptr():
            ready.append((own[name], tensor.clone() if is_own else tensor))
    return ready


def write_weights(ready: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Write what `checked_weights` returned."""
    for own, tensor in ready:
        if own.untyped_storage().nbytes() < own.nbytes:  # `drop_weights`
            own.data = _plain_memory(own)
        with torch.inference_mode():  # some models are made in it
            own.copy_(tensor)


@torch.inference_mode(False)
def move_weights(model: nn.Module, device: torch.device) -> None:
    """Move parameters to a device."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(device)


@torch.inference_mode(False)
def drop_weights(model: nn.Module) -> None:
    """Let the memory of parameters go; they keep shape, dtype and device."""
    for parameter in model.parameters():
        parameter.data = parameter.data.new_zeros(()).expand(parameter.shape)


@torch.inference_mode(False)
def _plain_memory(like: torch.Tensor) -> torch.Tensor:
    return torch.empty(like.shape, dtype=like.dtype, device=like.device)


def _are_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    same = one.data_ptr() == other.data_ptr() and one.device == other.device
    return same or torch.equal(one.cpu().double(), other.cpu().double())


def _pairs(weights: Any) -> Iterator[tuple[str, torch.Tensor]]:
    pairs = weights.items() if isinstance(weights, Mapping) else weights
    if not isinstance(pairs, Iterable):
        raise ConfigError(
            f"LLM.update_weights: weights must be a path, a mapping, or pairs, not {type(weights).__name__}"
        )
    for pair in pairs:
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[0], str)):
            raise ConfigError(f"LLM.update_weights: {pair!r:.80} is not a name with a tensor")
        yield pair[0], pair[1]


def _plain(name: str, tensor: Any) -> torch.Tensor:
    """Return a tensor that has all of its numbers."""
    if hasattr(tensor, "full_tensor"):  # a DTensor, of which this process has a part
        tensor = tensor.full_tensor()
    if isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided and not tensor.is_meta:
        plain = tensor.detach()
        if type(plain) is torch.Tensor:
            return plain
    raise ConfigError(f"LLM.update_weights: {name!r} is not a plain dense tensor of torch with numbers")


def _check(name: str, new: torch.Tensor, own: torch.Tensor) -> None:
    if new.shape != own.shape:
        wrong = f"has shape {list(new.shape)}, the model's {list(own.shape)}"
    elif new.dtype != own.dtype and not (new.is_floating_point() and own.is_floating_point()):
        wrong = f"has {_dtype(new)}, the model's {_dtype(own)}"
    elif own.is_floating_point() and not new.to(own.dtype).isfinite().all():
        wrong = f"has numbers that are not finite in {_dtype(own)}"
    else:
        return
    raise ConfigError(f"LLM.update_weights: {name!r} {wrong}")


def _renamed(given: Tensors, model: PreTrainedModel) -> Tensors:
    """Return tensors of a checkpoint as `transformers` renames, joins and splits them for a model."""
    try:
        with _quietly():
            loaded: Any = type(model).from_pretrained(
                None, config=model.config, state_dict=dict(given), dtype=model.dtype, ignore_mismatched_sizes=True,
                output_loading_info=True,
            )  # fmt: skip
    except RuntimeError as error:  # parts that are to be joined are missing, or do not fit
        unknown = min(given.keys() - model.state_dict().keys())
        raise ConfigError(
            f"LLM.update_weights: {unknown!r} and its like cannot be joined to tensors of {type(model).__name__} "
            f"({first_line(error)}): give all tensors of a checkpoint of this model"
        ) from error
    other, report = loaded
    for key, what in (
        ("unexpected_keys", "unknown"), ("missing_keys", "missing"), ("mismatched_keys", "of another shape"),
    ):  # fmt: skip
        for found in sorted(report[key]):
            name = found if isinstance(found, str) else found[0]
            raise ConfigError(
                f"LLM.update_weights: {name!r} is {what}{_nearest(name, {*given, *other.state_dict()} - {name})}: give the "
                "tensors of a checkpoint of this model"
            )
    tensors: Tensors = other.state_dict()
    return tensors


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep `transformers` from showing what it loads: an update is a part of a loop."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with without_bars():
            yield
    finally:
        logging.set_verbosity(level)


def _check_config(path: str, new: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    for key in sorted(new.keys() | own.keys(), key=str):
        has_effect = (
            key not in _WITHOUT_EFFECT
            and str(key)[:1] != "_"
            and not any(part in str(key) for part in ("dropout", "token_id"))
        )
        theirs, ours = new.get(key), own.get(key)
        if has_effect and isinstance(theirs, Mapping) and isinstance(ours, Mapping):
            _check_config(path, theirs, ours)
        elif has_effect and theirs != ours:
            raise ConfigError(
                f"LLM.update_weights: {path!r} is another model: its config.json has {key!r}: {theirs!r:.80}, and the target's "
                f"{ours!r:.80}"
            )


def _not_blocks(why: str) -> str:
    return (
        f"LLM.update_weights: the target's weights stay in blocks of 4 to 8 bits, and {why}: load float weights (LLM's "
        "weights='widen', or a folder of safetensors), or give a file of the same kinds"
    )


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _nearest(name: str, names: Iterable[str]) -> str:
    nearest = get_close_matches(name, list(names), n=1, cutoff=0.6)
    return f" (nearest is {nearest[0]!r})" if nearest else ""
