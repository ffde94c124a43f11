"""A whole model of fused layers, which replaces the original model's forward."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import torch

from specdec.errors import ModelError
from specdec.runner.agreement import agreement
from specdec.runner.fused.chain import HostChain
from specdec.runner.fused.ends import model_ends
from specdec.runner.fused.host_layers import HostLayers
from specdec.runner.fused.host_stack import HostStack
from specdec.runner.fused.invariance import Invariance, InvariantLinear, InvariantNorm
from specdec.runner.fused.layer import FusedLayer
from specdec.runner.fused.linear import FastLinear, can_pack
from specdec.runner.fused.norm import FastNorm
from specdec.runner.fused.pieces import Piece, in_pieces, pieces_of, run_pieces, takes_pieces
from specdec.runner.fused.rotary import RotaryTable
from specdec.runner.fused.structure import LlamaParts, llama_parts
from specdec.runner.host.segments import HostSegments
from specdec.runner.packed import ForwardOutput, PackedBatch

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from specdec.runner.model_runner import ModelRunner

logger = logging.getLogger("specdec")

_COST = "the model's own forward runs instead, on the host two to four times slower"
"""Measured with SmolLM2-135M and the zoo's target, batch 1."""


class FusedModel:
    """Runs the layers directly: no module calls, joined projections, rotary factors from a table.

    Raises:
        ModelError: if the requested batch invariance is not possible.
    """

    def __init__(self, parts: LlamaParts, runner: ModelRunner, invariance: Invariance) -> None:
        total = sum(p.numel() * p.element_size() for p in runner.model.parameters())
        dtype = parts.head.weight.dtype
        has_kernels = invariance is Invariance.KERNELS
        self._runner = runner
        self._invariance = invariance
        self._embedding = parts.embed_tokens.weight.detach()
        self._layers = [
            FusedLayer(layer, runner.windows[index], has_kernels=has_kernels)
            for index, layer in enumerate(parts.layers)
        ]
        self._norm = InvariantNorm(parts.norm) if has_kernels else FastNorm(parts.norm)
        self._head = InvariantLinear([parts.head]) if has_kernels else FastLinear([parts.head])
        self._rotary = RotaryTable(parts.rotary, self._embedding)
        self._host: HostLayers | None = None
        self._stack: HostStack | None = None
        self._takes_pieces = False
        self.chain: HostChain | None = None
        if not has_kernels and HostLayers.supports(self._layers, runner.device, dtype):
            self._host = HostLayers(self._layers, self._norm, self._rotary)
            ends = model_ends(self._embedding, self._head)
            parts_of_it = self._layers, self._host.norms, self._host.head_norms
            if ends is not None and HostStack.supports(*parts_of_it, ends):
                self._stack = HostStack(*parts_of_it, ends)
                self._takes_pieces = takes_pieces(self._stack)
                self.chain = HostChain(self._stack, self._rotary, runner)
        is_long_elsewhere = invariance is Invariance.NONE and not self._takes_pieces
        if is_long_elsewhere and can_pack(total, dtype, runner.device):
            for linear in (self._head, *(linear for layer in self._layers for linear in layer.linears)):
                linear.pack()
        name = type(runner.model).__name__
        if invariance is Invariance.COMPILED:
            if self._stack is None:
                raise ModelError(
                    f"{name}: deterministic=True runs layers of one shape, with SiLU, in float32 or bfloat16, through compiled "
                    f"loops; this model ({str(dtype).removeprefix('torch.')}) or this machine has none: leave deterministic out"
                )
            # Made once for all positions, because a table that grows is recomputed.
            self.hold_positions(runner.max_context)
        elif has_kernels and not all(layer.is_silu for layer in self._layers):
            raise ModelError(f"{name}: deterministic=True has no kernel for its activation: leave it out")

    def hold_positions(self, length: int) -> None:
        """Compute the rotary factors of all positions below `length` now and keep them at fixed addresses."""
        self._rotary.hold(length)

    def forward(self, batch: PackedBatch, wants_hidden: bool, aux_ids: tuple[int, ...]) -> ForwardOutput:
        """Run a packed batch; arguments and result as in `ModelRunner`."""
        runner = self._runner
        if self._invariance is Invariance.COMPILED:
            return self._compiled(batch, in_pieces(batch), wants_hidden, aux_ids)
        if self._invariance is Invariance.KERNELS:
            from specdec.runner.triton_backend import kernels_on  # imports the optional kernels

            with kernels_on(runner.device):
                return self._by_layers(batch, wants_hidden, aux_ids)
        if self._stack is not None:
            pieces = pieces_of(self._stack, batch, takes_pieces=self._takes_pieces)
            if pieces is not None:
                return self._compiled(batch, pieces, wants_hidden, aux_ids)
        if self._host is not None:
            segments = self._host.segments(batch)
            if segments is not None:
                return self._by_host_layers(self._host, segments, batch, wants_hidden, aux_ids)
        return self._by_layers(batch, wants_hidden, aux_ids)

    def run_other_forms(self, batch: PackedBatch) -> None:
        """Run a short pass in each form that a pass may take on the host, besides the one that `fuse` ran."""
        if self._host is None:
            self._by_layers(batch, False, ())
        elif not self._takes_pieces:
            segments = self._host.segments(batch)
            assert segments is not None, "the pass of a probe is short"
            self._by_host_layers(self._host, segments, batch, False, ())

    def _by_host_layers(
        self,
        host: HostLayers,
        segments: HostSegments,
        batch: PackedBatch,
        wants_hidden: bool,
        aux_ids: tuple[int, ...],
    ) -> ForwardOutput:
        """Run a short pass layer by layer in compiled loops."""
        x = self._embedding[batch.token_ids]
        hidden, aux = host.forward(x.float(), batch, segments, self._runner.cache, aux_ids)
        rows = hidden if batch.logits_rows is None else hidden[batch.logits_rows]
        return ForwardOutput(
            logits=self._head(rows),
            hidden_states=hidden.to(self._embedding.dtype) if wants_hidden else None,
            aux_hidden_states=tuple(aux[k].to(self._embedding.dtype) for k in aux_ids),
        )

    def _by_layers(self, batch: PackedBatch, wants_hidden: bool, aux_ids: tuple[int, ...]) -> ForwardOutput:
        """Run a pass layer by layer."""
        runner = self._runner
        x = self._embedding[batch.token_ids]
        cos, sin = self._rotary.rows(batch.positions, max(s.kv_len for s in batch.segments))
        inputs = {}
        for index, layer in enumerate(self._layers):
            if index in aux_ids:
                inputs[index] = x
            x = layer.forward(x, cos, sin, batch, runner.backend)
        inputs[len(self._layers)] = x  # the last layer's output
        if not wants_hidden and batch.logits_rows is not None:
            x = x[batch.logits_rows]
        hidden = self._norm(x)
        rows = hidden[batch.logits_rows] if wants_hidden and batch.logits_rows is not None else hidden
        return ForwardOutput(
            logits=self._head(rows),
            hidden_states=hidden if wants_hidden else None,
            aux_hidden_states=tuple(inputs[k] for k in aux_ids),
        )

    def _compiled(
        self, batch: PackedBatch, pieces: list[Piece], wants_hidden: bool, aux_ids: tuple[int, ...]
    ) -> ForwardOutput:
        """Run a pass in one compiled call per piece."""
        assert self._stack is not None
        tables = self._rotary.host_tables(max(s.kv_len for s in batch.segments))
        logits, states, aux = run_pieces(self._stack, batch, pieces, self._runner.cache, tables, aux_ids)
        dtype = self._embedding.dtype
        return ForwardOutput(
            logits=torch.from_numpy(logits),
            hidden_states=torch.from_numpy(states).to(dtype) if wants_hidden else None,
            aux_hidden_states=tuple(torch.from_numpy(inputs).to(dtype) for inputs in aux),
        )


@torch.inference_mode()
def fuse(model: PreTrainedModel, runner: ModelRunner, invariance: Invariance) -> FusedModel | None:
    """Return the fused form of a model; None, with a warning, if its structure is unknown or the form does not agree.

    The fused form is compared with a forward in wider arithmetic before it is used. A model that deviates from the
    structure in a way that its parts do not show (scaled residuals, for example) thus falls back to its own forward.
    The error may be the model's own rounding error times a factor; see `agreement`.

    Raises:
        ModelError: if there is no fused form and batch invariance is required, which the model's own forward lacks.
    """
    name = type(model).__name__
    is_needed = invariance is not Invariance.NONE
    parts = llama_parts(model)
    if parts is None:
        if is_needed:
            raise ModelError(
                f"{name}: deterministic=True runs layers of the Llama structure through operations that keep a row's bits, "
                "and this model's own forward does not: leave deterministic out"
            )
        is_hooked = any(hasattr(module, "_hf_hook") for module in model.modules())
        reason = "are spread by device_map" if is_hooked else "are not of the Llama structure"
        logger.warning("%s: no fused form, its layers %s; %s", name, reason, _COST)
        return None
    batch = runner.probe_batch()
    own = runner.forward_reference(batch).logits
    reference = runner.forward_wide(batch)
    fused = FusedModel(parts, runner, invariance)
    found = agreement([fused.forward(batch, False, ()).logits], [own], [reference], runner.dtype)
    runner.rounding = found.own_error
    if not found.holds:
        if is_needed:
            raise ModelError(
                f"{name}: deterministic=True would change what the model computes: its layers are not those of Llama "
                f"(logits are {found}): leave deterministic out"
            )
        logger.warning("%s: fused layers are not used, their logits are %s; %s", name, found, _COST)
        return None
    return fused
