"""Reads the training inputs of heads: the target's hidden states and logits at every position."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from specdec_runtime.models import decoder_layers, output_head


@dataclass(frozen=True)
class TargetStates:
    """The target's hidden states and logits for windows of text."""

    hidden: Tensor
    """`[B, T, H]` the final norm's output."""
    aux: tuple[Tensor, ...]
    """`[B, T, H]` per aux layer id: the input of that layer."""
    logits: Tensor
    """`[B, T, V]` for the next token; `[M, V']` if positions or ids were selected."""


class StateReader:
    """Runs a target and captures the hidden states that a head reads.

    Args:
        target: a causal language model of `transformers`; it is frozen.
        aux_layer_ids: layers whose inputs are captured; their number stands for the last one's output.
    """

    def __init__(self, target: PreTrainedModel, aux_layer_ids: Sequence[int] = ()) -> None:
        self.target = target.train(False).requires_grad_(False)
        self.aux_layer_ids = tuple(aux_layer_ids)

    @torch.no_grad()
    def read(self, tokens: Tensor, places: Tensor | None = None, ids: Tensor | None = None) -> TargetStates:
        """Return the target's states and logits for `tokens [B, T]`.

        Args:
            tokens: the text.
            places: `[M]` positions of the flattened windows whose logits are computed; None for all. With a
                large vocabulary, logits are much of the cost of a pass.
            ids: `[V']` ids whose logits are computed; None for all.
        """
        kept: dict[int, Tensor] = {}
        layers = decoder_layers(self.target)
        handles = [
            layers[k].register_forward_pre_hook(partial(_keep_input, kept, k), with_kwargs=True)
            if k < len(layers)
            else layers[-1].register_forward_hook(partial(_keep_output, kept, k))
            for k in self.aux_layer_ids
        ]
        try:
            hidden, logits = logits_of(self.target, tokens, places, ids)
        finally:
            for handle in handles:
                handle.remove()
        return TargetStates(hidden, tuple(kept[k] for k in self.aux_layer_ids), logits)


def logits_of(
    model: PreTrainedModel, tokens: Tensor, places: Tensor | None = None, ids: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the input `[B, T, H]` of a model's output projection for `tokens [B, T]`, and logits.

    `places` and `ids` select logits as in `StateReader.read`.

    The model's own processing after the projection (caps, scales) applies to the selected logits.
    """
    kept: list[Tensor] = []
    with _projecting(output_head(model), kept, places, ids):
        logits = model(input_ids=tokens, use_cache=False).logits
    return kept[0], logits if places is None else logits[0]


@contextmanager
def _projecting(
    head: nn.Module, kept: list[Tensor], places: Tensor | None, ids: Tensor | None
) -> Iterator[None]:
    """Make an output projection record its input, and project only the selected positions and ids."""
    project: Callable[[Tensor], Tensor] = head.forward

    def forward(hidden: Tensor) -> Tensor:
        kept.append(hidden)
        chosen = hidden if places is None else hidden.flatten(0, 1)[places][None]
        if ids is None:
            return project(chosen)
        bias = getattr(head, "bias", None)
        return F.linear(chosen, head.get_parameter("weight")[ids], None if bias is None else bias[ids])

    head.__dict__["forward"] = forward
    try:
        yield
    finally:
        del head.__dict__["forward"]


def _keep_input(
    kept: dict[int, Tensor], layer: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    kept[layer] = args[0] if args else kwargs["hidden_states"]


def _keep_output(
    kept: dict[int, Tensor], layer: int, module: nn.Module, args: object, output: Tensor | tuple[Tensor, ...]
) -> None:
    kept[layer] = output if isinstance(output, Tensor) else output[0]
