"""A model of the Llama structure, layer by layer."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from specdec.interfaces import Form, ForwardOutput, PackedBatch, Runner
from specdec_kernels.layers.invariance import InvariantLinear, InvariantNorm
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
        is_invariant: whether rows keep their bits in any pass, by batch-invariant kernels on the device.
    """

    def __init__(self, parts: LlamaParts, runner: Runner, *, is_invariant: bool) -> None:
        self._runner = runner
        self.is_invariant = is_invariant
        make_linear: type[JoinedLinear] = InvariantLinear if is_invariant else FastLinear
        self._embedding = parts.embed_tokens.weight.detach()
        self._layers = [
            FusedLayer(layer, runner.windows[index], make_linear=make_linear, is_invariant=is_invariant)
            for index, layer in enumerate(parts.layers)
        ]
        self._norm = InvariantNorm(parts.norm) if is_invariant else FastNorm(parts.norm)
        self._head = make_linear([parts.head])
        self._rotary = RotaryTable(parts.rotary, self._embedding)
        if runner.device.type == "cuda":
            # Captured passes read the table at one address, so it must not grow.
            self._rotary.hold(runner.max_context)

    @property
    def is_silu(self) -> bool:
        """Whether the activation of every layer is SiLU, which has a batch-invariant kernel."""
        return all(layer.is_silu for layer in self._layers)

    def forward(self, batch: PackedBatch, features: torch.Tensor | None) -> ForwardOutput:
        """See `Form.forward`."""
        wanted = self._runner.wanted
        with self._kernels():
            x = self._embedding[batch.token_ids]
            cos, sin = self._rotary.rows(
                batch.positions, batch.longest or max(s.kv_len for s in batch.segments)
            )
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

    def _kernels(self) -> AbstractContextManager[None]:
        if not self.is_invariant:
            return nullcontext()
        from specdec_kernels.cuda.attention import kernels_on  # imports Triton

        return kernels_on(self._runner.device)
