"""A whole model of fused layers, standing in for the forward of the original."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np
import torch
from transformers import PreTrainedModel

from specdec.runner.fused.chain import HostChain
from specdec.runner.fused.ends import model_ends
from specdec.runner.fused.host_layers import HostLayers, pass_slots
from specdec.runner.fused.host_stack import HostStack
from specdec.runner.fused.layer import FusedLayer
from specdec.runner.fused.linear import FastLinear, can_pack
from specdec.runner.fused.norm import FastNorm
from specdec.runner.fused.rotary import RotaryTable
from specdec.runner.fused.structure import LlamaParts, llama_parts
from specdec.runner.host.attention import HostSegments
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
        self._stack: HostStack | None = None
        self.chain: HostChain | None = None
        if HostLayers.supports(self._layers, runner.device, dtype):
            self._host = HostLayers(self._layers, self._norm, self._rotary)
            ends = model_ends(self._embedding, self._head)
            parts_of_it = self._layers, self._host.norms, self._host.head_norms
            if ends is not None and HostStack.supports(*parts_of_it, ends):
                self._stack = HostStack(*parts_of_it, ends)
                self._max_stack_rows = self._stack.max_rows()
                self.chain = HostChain(self._stack, self._rotary)

    def forward(self, batch: PackedBatch, wants_hidden: bool, aux_ids: tuple[int, ...]) -> ForwardOutput:
        """Run a packed batch; arguments and result as in `ModelRunner`."""
        runner = self._runner
        if self._host is not None:
            segments = self._host.segments(batch)
            if (
                segments is not None
                and self._stack is not None
                and len(batch.token_ids) <= self._max_stack_rows
            ):
                return self._in_one_call(self._stack, batch, segments, wants_hidden, aux_ids)
            if segments is not None:
                x = self._embedding[batch.token_ids]
                hidden, aux = self._host.forward(x.float(), batch, segments, runner.cache, aux_ids)
                rows = hidden if batch.logits_rows is None else hidden[batch.logits_rows]
                return ForwardOutput(
                    logits=self._head(rows),
                    hidden_states=hidden.to(self._embedding.dtype) if wants_hidden else None,
                    aux_hidden_states=tuple(aux[k].to(self._embedding.dtype) for k in aux_ids),
                )
        x = self._embedding[batch.token_ids]
        cos, sin = self._rotary.rows(batch.positions, max(s.kv_len for s in batch.segments))
        inputs = {}
        for index, layer in enumerate(self._layers):
            if index in aux_ids:
                inputs[index] = x
            x = layer.forward(x, cos, sin, batch, runner.backend)
        if not wants_hidden and batch.logits_rows is not None:
            x = x[batch.logits_rows]
        hidden = self._norm(x)
        rows = hidden[batch.logits_rows] if wants_hidden and batch.logits_rows is not None else hidden
        return ForwardOutput(
            logits=self._head(rows),
            hidden_states=hidden if wants_hidden else None,
            aux_hidden_states=tuple(inputs[k] for k in aux_ids),
        )

    def _in_one_call(
        self,
        stack: HostStack,
        batch: PackedBatch,
        segments: HostSegments,
        wants_hidden: bool,
        aux_ids: tuple[int, ...],
    ) -> ForwardOutput:
        tokens = batch.token_ids.numpy()
        rows = np.arange(len(tokens)) if batch.logits_rows is None else batch.logits_rows.numpy()
        logits, states, aux = stack.run(
            tokens,
            None,
            self._runner.cache,
            self._rotary.host_tables(max(s.kv_len for s in batch.segments)),
            batch.positions.numpy(),
            pass_slots(batch, segments),
            segments,
            aux_ids,
            rows,
        )
        dtype = self._embedding.dtype
        return ForwardOutput(
            logits=torch.from_numpy(logits).to(dtype),
            hidden_states=torch.from_numpy(states).to(dtype) if wants_hidden else None,
            aux_hidden_states=tuple(torch.from_numpy(inputs).to(dtype) for inputs in aux),
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
