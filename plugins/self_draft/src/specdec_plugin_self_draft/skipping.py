"""Leaves layers out of a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import nn

from specdec import ConfigError
from specdec_cli import progress
from specdec_runtime.models import decoder_layers

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_TEXT = (
    "The committee met on Tuesday to discuss the budget for the next three years. Most members agreed that the plan was sound, "
    "but some asked why it costs more than last year.\n\ndef mean(values):\n    total = 0\n    for value in values:\n"
    "        total += value\n    return total / len(values)\n"
)
_LENGTH = 96


def leave_out(model: PreTrainedModel, layers: Sequence[int]) -> None:
    """Leave layers out of a model; the others keep their numbers, and with them their place in a cache.

    Raises:
        ConfigError: if there is no such layer, or if none is left.
    """
    found = decoder_layers(model)
    outside = [layer for layer in layers if not 0 <= layer < len(found)]
    if outside or len(set(layers)) == len(found):
        raise ConfigError(
            f"speculative_config: 'skip_layers': the target has the layers 0 to {len(found) - 1}, "
            + (f"and no layer {outside[0]}" if outside else "and one must stay")
        )
    _keep(model, [number for number in range(len(found)) if number not in layers])


def least_needed(
    model: PreTrainedModel, count: int, tokenizer: PreTrainedTokenizerBase | None
) -> tuple[int, ...]:
    """Return `count` layers, of which each one alone changes the model's distributions over a short text least.

    Args:
        model: a model whose attention may be chosen anew.
        count: number of layers.
        tokenizer: its tokenizer; without one, the text is random ids.

    Raises:
        ConfigError: if the model has no more layers than that.
    """
    total = len(decoder_layers(model))
    if count >= total:
        raise ConfigError(
            f"speculative_config: 'skip_layers': {count} of the target's {total} layers: one must stay"
        )
    ids = _text_ids(tokenizer, model.config.get_text_config().vocab_size)
    model.set_attn_implementation("eager")
    costs = []
    with torch.inference_mode(), progress("measuring layers for drafts", total) as steps:
        whole = _log_probs(model, ids)
        for layer in range(total):
            with _without(model, layer):
                costs.append(float((whole.exp() * (whole - _log_probs(model, ids))).sum(-1).mean()))
            steps.advance()
    return tuple(sorted(sorted(range(total), key=costs.__getitem__)[:count]))


def _text_ids(tokenizer: PreTrainedTokenizerBase | None, vocab_size: int) -> list[int]:
    if tokenizer is None:
        return torch.randint(vocab_size, (_LENGTH,), generator=torch.Generator().manual_seed(0)).tolist()
    ids: list[int] = tokenizer(_TEXT)["input_ids"]
    return ids[:_LENGTH]


def _log_probs(model: PreTrainedModel, ids: Sequence[int]) -> torch.Tensor:
    """Return `[T, V]` float32."""
    logits: torch.Tensor = model(input_ids=torch.tensor([ids], device=model.device), use_cache=False).logits[
        0
    ]
    return logits.float().log_softmax(-1)


@contextmanager
def _without(model: PreTrainedModel, layer: int) -> Iterator[None]:
    layers, config = decoder_layers(model), model.config.get_text_config()
    count, kinds = config.num_hidden_layers, getattr(config, "layer_types", None)
    _keep(model, [number for number in range(count) if number != layer])
    try:
        yield
    finally:
        model.set_submodule(_name_of(model, decoder_layers(model)), layers)
        config.num_hidden_layers = count
        if kinds is not None:
            config.layer_types = kinds


def _keep(model: PreTrainedModel, kept: Sequence[int]) -> None:
    layers, config = decoder_layers(model), model.config.get_text_config()
    model.set_submodule(_name_of(model, layers), nn.ModuleList(layers[number] for number in kept))
    config.num_hidden_layers = len(kept)
    if getattr(config, "layer_types", None) is not None:
        config.layer_types = [config.layer_types[number] for number in kept]


def _name_of(model: PreTrainedModel, wanted: nn.Module) -> str:
    names: list[str] = [name for name, module in model.named_modules() if module is wanted]
    return names[0]
