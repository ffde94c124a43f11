"""A model layer by layer."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from specdec_kernels.layers.layer import FusedLayer
from specdec_kernels.layers.linear import FastLinear, JoinedLinear
from specdec_kernels.layers.norm import FastNorm
from specdec_kernels.layers.parts import ModelParts
from specdec_kernels.layers.rotary import RotaryTables
from specdec_runtime.interfaces import Form, ForwardOutput, PackedBatch, Runner


class LayersForm(Form):
    """Runs the layers directly: no module calls, joined projections, rotary factors from a table.

    Args:
        parts: the model's parts.
        runner: its runner.
        make_linear: makes the joined products.
        make_layer: makes a layer.
        make_norm: makes the last norm.
    """

    uses_attention = True

    def __init__(
        self,
        parts: ModelParts,
        runner: Runner,
        *,
        make_linear: Callable[[list[nn.Linear]], JoinedLinear] = FastLinear,
        make_layer: type[FusedLayer[JoinedLinear]] = FusedLayer,
        make_norm: type[FastNorm] = FastNorm,
    ) -> None:
        self._runner = runner
        self._embedding = parts.embed_tokens.weight.detach()
        self._layers = [make_layer(layer, make_linear=make_linear) for layer in parts.layers]
        self._norm = make_norm(parts.norm)
        self._head = make_linear([parts.head])
        self._parts = parts
        self._rotary = RotaryTables(parts.rotary, self._embedding, parts.layers)
        if runner.device.type == "cuda":
            # Captured passes read the table at one address, so it must not grow.
            self._rotary.hold(runner.max_context)

    def forward(self, batch: PackedBatch, features: torch.Tensor | None) -> ForwardOutput:
        """Run a pass layer by layer on joined projections."""
        batch.send()
        wanted = self._runner.wanted
        x = self._embedding[batch.token_ids]
        if self._parts.embed_scale != 1.0:
            x = x * self._parts.embed_scale
        factors = self._rotary.rows(batch.positions, batch.longest or max(s.kv_len for s in batch.segments))
        inputs = {}
        for index, layer in enumerate(self._layers):
            if index in wanted.aux_layer_ids:
                inputs[index] = x
            x = layer.forward(x, factors, batch, self._runner.attention)
        inputs[len(self._layers)] = x  # the last layer's output
        if not wanted.final and batch.logits_rows is not None:
            x = x[batch.logits_rows]
        hidden = self._norm(x)
        is_cut = wanted.final and batch.logits_rows is not None
        return ForwardOutput(
            logits=self._logits(hidden[batch.logits_rows] if is_cut else hidden),
            hidden_states=hidden if wanted.final else None,
            aux_hidden_states=tuple(inputs[k] for k in wanted.aux_layer_ids),
        )

    def _logits(self, hidden: torch.Tensor) -> torch.Tensor:
        logits, cap = self._head(hidden), self._parts.logits_softcap
        if self._parts.logits_scale != 1.0:
            logits = logits * self._parts.logits_scale
        return logits if cap is None else cap * torch.tanh(logits / cap)

    def warm_up(self, batch: PackedBatch, features: torch.Tensor | None) -> None:
        """Run a short pass, so that no request compiles anything."""
        self._rotary.forget()
        self.forward(batch, features)
