"""A model of layers like Llama's on a device with the kernels."""

from __future__ import annotations

import torch

from specdec_kernels.cuda.attention import PagedAttention, kernels_on
from specdec_kernels.layers.device_layer import DeviceLayer, Halves, InvariantLinear, KernelNorm
from specdec_kernels.layers.form import LayersForm
from specdec_kernels.layers.linear import FastLinear
from specdec_kernels.layers.parts import ModelParts
from specdec_runtime.interfaces import ForwardOutput, PackedBatch, Runner


class DeviceForm(LayersForm):
    """Runs the layers by fused kernels.

    Args:
        parts: the model's parts, those of Llama.
        runner: its runner, whose attention is `PagedAttention`.
        is_invariant: whether rows keep their bits in any pass, by batch-invariant products.
    """

    def __init__(self, parts: ModelParts, runner: Runner, *, is_invariant: bool) -> None:
        super().__init__(
            parts,
            runner,
            make_linear=InvariantLinear if is_invariant else FastLinear,
            make_layer=DeviceLayer,
            make_norm=KernelNorm,
        )
        self.is_invariant = is_invariant
        # Captured passes read the table at one address, so it must not grow.
        self._rotary.hold(runner.max_context)
        self._rotation = Halves(*self._rotary.only.halves())

    def forward(self, batch: PackedBatch, features: torch.Tensor | None) -> ForwardOutput:
        """Run a pass layer by layer with fused kernels."""
        batch.send()
        wanted, attention = self._runner.wanted, self._runner.attention
        assert isinstance(attention, PagedAttention) and isinstance(self._norm, KernelNorm)
        with kernels_on(self._runner.device):
            x, delta = self._embedding[batch.token_ids], None
            inputs = {}
            for index, layer in enumerate(self._layers):
                assert isinstance(layer, DeviceLayer)
                entered, x, delta = layer.added(x, delta, self._rotation, batch, attention)
                if index in wanted.aux_layer_ids:
                    inputs[index] = entered
            rows = None if wanted.final or len(self._layers) in wanted.aux_layer_ids else batch.logits_rows
            if rows is not None:
                x, delta = x[rows], None if delta is None else delta[rows]
            hidden, inputs[len(self._layers)] = self._norm.of_sum(x, delta)
            is_cut = rows is None and batch.logits_rows is not None
            return ForwardOutput(
                logits=self._head(hidden[batch.logits_rows] if is_cut else hidden),
                hidden_states=hidden if wanted.final else None,
                aux_hidden_states=tuple(inputs[k] for k in wanted.aux_layer_ids),
            )
