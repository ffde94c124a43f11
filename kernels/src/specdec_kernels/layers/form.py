"""A model of the Llama structure, layer by layer."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from specdec.interfaces import Form, ForwardOutput, PackedBatch, Runner
from specdec_kernels.layers.layer import FusedLayer
from specdec_kernels.layers.linear import FastLinear, JoinedLinear
from specdec_kernels.layers.norm import FastNorm
from specdec_kernels.layers.rotary import RotaryTable
from specdec_kernels.layers.structure import LlamaParts


class LayersForm(Form):
    """Runs the layers directly: no module calls, joined projections, rotary factors from a table.

    Args:
        parts: the model's parts.
        runner: its runner.
        make_linear: makes the joined products.
        make_layer: makes a layer.
        make_norm: makes the last norm.
    """

    def __init__(
        self,
        parts: LlamaParts,
        runner: Runner,
        *,
        make_linear: Callable[[list[nn.Linear]], JoinedLinear] = FastLinear,
        make_layer: type[FusedLayer[JoinedLinear]] = FusedLayer,
        make_norm: type[FastNorm] = FastNorm,
    ) -> None:
        self._runner = runner
        self._embedding = parts.embed_tokens.weight.detach()
        self._layers = [
            make_layer(layer, runner.windows[index], make_linear=make_linear)
            for index, layer in enumerate(parts.layers)
        ]
        self._norm = make_norm(parts.norm)
        self._head = make_linear([parts.head])
        self._rotary = RotaryTable(parts.rotary, self._embedding)
        if runner.device.type == "cuda":
            # Captured passes read the table at one address, so it must not grow.
            self._rotary.hold(runner.max_context)

    def forward(self, batch: PackedBatch, features: torch.Tensor | None) -> ForwardOutput:
        """See `Form.forward`."""
        wanted = self._runner.wanted
        x = self._embedding[batch.token_ids]
        cos, sin = self._rotary.rows(batch.positions, batch.longest or max(s.kv_len for s in batch.segments))
        inputs = {}
        for index, layer in enumerate(self._layers):
            if index in wanted.aux_layer_ids:
                inputs[index] = x
            x = layer.forward(x, cos, sin, batch, self._runner.attention)
        inputs[len(self._layers)] = x  # the last layer's output
        if not wanted.final and batch.logits_rows is not None:
            x = x[batch.logits_rows]
        hidden = self._norm(x)
        is_cut = wanted.final and batch.logits_rows is not None
        return ForwardOutput(
            logits=self._head(hidden[batch.logits_rows] if is_cut else hidden),
            hidden_states=hidden if wanted.final else None,
            aux_hidden_states=tuple(inputs[k] for k in wanted.aux_layer_ids),
        )

    def warm_up(self, batch: PackedBatch, features: torch.Tensor | None) -> None:
        """See `Form.warm_up`."""
        self._rotary.forget()
        self.forward(batch, features)
