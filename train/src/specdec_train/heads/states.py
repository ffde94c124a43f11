"""What heads learn from: the states and the law of the target at every position."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from specdec.runner import decoder_layers, output_head


@dataclass(frozen=True)
class TargetStates:
    """The target's view of some windows of text."""

    hidden: Tensor
    """`[B, T, H]` the final norm's output."""
    aux: tuple[Tensor, ...]
    """`[B, T, H]` per aux layer id: the input of that layer."""
    logits: Tensor
    """`[B, T, V]` for the next token."""


class StateReader:
    """Runs a target and keeps the states that a head takes, of these layers only.

    Args:
        target: a causal language model of `transformers`, frozen.
        aux_layer_ids: layers whose inputs are kept.
    """

    def __init__(self, target: PreTrainedModel, aux_layer_ids: Sequence[int] = ()) -> None:
        self.target = target.train(False).requires_grad_(False)
        self._aux_layer_ids = tuple(aux_layer_ids)

    @torch.no_grad()
    def read(self, tokens: Tensor) -> TargetStates:
        """Return what the target makes of `tokens [B, T]`."""
        kept: dict[int, Tensor] = {}
        layers = decoder_layers(self.target)
        handles = [
            layers[k].register_forward_pre_hook(partial(_keep_input, kept, k), with_kwargs=True)
            for k in self._aux_layer_ids
        ]
        handles.append(output_head(self.target).register_forward_pre_hook(_keep(kept)))
        try:
            logits = self.target(input_ids=tokens, use_cache=False).logits
        finally:
            for handle in handles:
                handle.remove()
        return TargetStates(kept[-1], tuple(kept[k] for k in self._aux_layer_ids), logits)


def _keep(kept: dict[int, Tensor]) -> Callable[[nn.Module, tuple[Any, ...]], None]:
    """A hook that keeps what the output head takes, as number -1."""

    def hook(module: nn.Module, args: tuple[Any, ...]) -> None:
        kept[-1] = args[0]

    return hook


def _keep_input(
    kept: dict[int, Tensor], layer: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    kept[layer] = args[0] if args else kwargs["hidden_states"]
