"""A whole model of fused layers, standing in for the forward of the original."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import torch
from transformers import PreTrainedModel

from specdec.runner.fused.chain import HostChain
from specdec.runner.fused.host_layers import HostLayers
from specdec.runner.fused.layer import FusedLayer
from specdec.runner.fused.linear import FastLinear, can_pack
from specdec.runner.fused.norm import FastNorm
from specdec.runner.fused.rotary import RotaryTable
from specdec.runner.fused.structure import LlamaParts, llama_parts
from specdec.runner.packed import ForwardOutput, PackedBatch, probe_batch

if TYPE_CHECKING:
    from specdec.runner.model_runner import ModelRunner

logger = logging.getLogger("specdec")

_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}


class FusedModel:
    """Runs the layers directly: no module calls, joined projections, rotary factors from a table."""

    def __init__(self, parts: LlamaParts, runner: ModelRunner) -> None:
        total = sum(p.numel() * p.element_size() for p in runner.model.parameters())
        dtype = parts.head.weight.dtype
        is_packed = can_pack(total, dtype, runner.device)
        self._runner = runner
        self._embedding = parts.embed_tokens.weight.detach()
        self._layers = [
            FusedLayer(layer, runner.windows[index], is_packed=is_packed)
            for index, layer in enumerate(parts.layers)
        ]
        self._norm = FastNorm(parts.norm)
        self._head = FastLinear([parts.head], is_packed=is_packed)
        self._rotary = RotaryTable(parts.rotary, self._embedding)
        self._host: HostLayers | None = None
        if HostLayers.supports(self._layers, runner.device, dtype):
            self._host = HostLayers(self._layers, self._norm, self._rotary)
        self.chain: HostChain | None = None
        has_bias = parts.head.bias is not None
        if self._host is not None and self._host.can_chain and not has_bias:
            self.chain = HostChain(self._host, self._embedding, parts.head.weight.detach())

    def forward(self, batch: PackedBatch, wants_hidden: bool, aux_ids: tuple[int, ...]) -> ForwardOutput:
        """Run a packed batch; arguments and result as in `ModelRunner`."""
        runner = self._runner
        x = self._embedding[batch.token_ids]
        if self._host is not None:
            segments = self._host.segments(batch)
            if segments is not None:
                hidden, aux = self._host.forward(x.float(), batch, segments, runner.cache, aux_ids)
                rows = hidden if batch.logits_rows is None else hidden[batch.logits_rows]
                return ForwardOutput(
                    logits=self._head(rows),
                    hidden_states=hidden.to(self._embedding.dtype) if wants_hidden else None,
                    aux_hidden_states=tuple(aux[k].to(self._embedding.dtype) for k in aux_ids),
                )
        cos, sin = self._rotary.rows(batch.positions, max(s.kv_len for s in batch.segments))
        aux = {}
        for index, layer in enumerate(self._layers):
            if index in aux_ids:
                aux[index] = x
            x = layer.forward(x, cos, sin, batch, runner.backend)
        if not wants_hidden and batch.logits_rows is not None:
            x = x[batch.logits_rows]
        hidden = self._norm(x)
        rows = hidden[batch.logits_rows] if wants_hidden and batch.logits_rows is not None else hidden
        return ForwardOutput(
            logits=self._head(rows),
            hidden_states=hidden if wants_hidden else None,
            aux_hidden_states=tuple(aux[k] for k in aux_ids),
        )


@torch.inference_mode()
def fuse(model: PreTrainedModel, runner: ModelRunner) -> FusedModel | None:
    """Return the fused form of a model, or None where its structure is unknown or the fused form does not agree.

    The fused form is compared with the model's own forward on a few rows before it is used, so that a variation of the
    structure that the parts do not show (a scaling of residuals, say) falls back to the model's own forward.
    """
    parts = llama_parts(model)
    if parts is None:
        return None
    batch = probe_batch(parts.embed_tokens.num_embeddings, runner.device)
    expected = runner.forward_reference(batch).logits.float()
    fused = FusedModel(parts, runner)
    got = fused.forward(batch, False, ()).logits.float()
    error = (got - expected).norm() / expected.norm()
    tolerance = _TOLERANCE.get(parts.head.weight.dtype, 3e-2)
    if not error <= tolerance:
        logger.info(
            "%s: fused layers differ by %.1e, using the model's own forward", type(model).__name__, error
        )
        return None
    return fused
