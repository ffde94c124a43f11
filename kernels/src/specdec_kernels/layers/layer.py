"""One decoder layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import torch
from torch import nn

from specdec_kernels.layers.linear import JoinedLinear
from specdec_kernels.layers.norm import FastNorm
from specdec_kernels.layers.parts import Activation, LayerParts, Norm, Rotation
from specdec_runtime.interfaces import Attention, PackedBatch

L = TypeVar("L", bound=JoinedLinear)


class FusedLayer(Generic[L]):
    """The arithmetic of a layer with joined projections.

    Args:
        parts: the layer; the weights of its modules are re-arranged in place and stay shared.
        make_linear: makes the joined products.
    """

    def __init__(self, parts: LayerParts, *, make_linear: Callable[[list[nn.Linear]], L]) -> None:
        self.parts = parts
        self.qkv = make_linear(list(parts.qkv))
        self.out = make_linear([parts.out])
        self.gate_up = make_linear(list(parts.gate_up))
        self.down = make_linear([parts.down])
        self.linears = (self.qkv, self.out, self.gate_up, self.down)
        self.input_norm = self.make_norm(parts.input_norm)
        self.attended_norm = self.make_norm(parts.attended_norm)
        self.mlp_norm = self.make_norm(parts.mlp_norm)
        self.mlp_out_norm = self.make_norm(parts.mlp_out_norm)
        self.query_norm = self.make_norm(parts.query_norm)
        self.key_norm = self.make_norm(parts.key_norm)
        self.value_norm = self.make_norm(parts.value_norm)
        self.intermediate = self.gate_up.num_out // 2

    def make_norm(self, norm: Norm | None) -> FastNorm | None:
        """Return a norm of the layer."""
        return None if norm is None else FastNorm(norm)

    def forward(
        self,
        x: torch.Tensor,
        factors: Mapping[Rotation, tuple[torch.Tensor, torch.Tensor]],
        batch: PackedBatch,
        attention: Attention,
    ) -> torch.Tensor:
        """Return the layer's output `[T, H]` for input `x [T, H]`; `factors` are those of `RotaryTables.rows`."""
        parts, num_rows = self.parts, x.shape[0]
        entry = _normed(x, self.input_norm)
        heads = self.qkv(entry).view(num_rows, -1, parts.head_dim)
        num_rotated = parts.num_heads + parts.num_kv_heads
        value = heads[:, -parts.num_kv_heads :]
        if self.value_norm is not None:
            value = self.value_norm(value)
        rotated = self._rotated(self._normed_heads(heads[:, :num_rotated]), factors)
        attended = attention.attend(
            parts.index,
            batch,
            rotated[:, : parts.num_heads],
            rotated[:, parts.num_heads :],
            value,
            scaling=parts.scaling,
            window=parts.window,
            softcap=parts.softcap,
        )
        x = self._added(x, self.out(attended.reshape(num_rows, -1)), self.attended_norm)
        if not parts.is_parallel:
            entry = _normed(x, self.mlp_norm)
        gate, up = self.gate_up(entry).split(self.intermediate, -1)
        if parts.activation is Activation.SILU:
            activated = nn.functional.silu(gate)
        else:
            activated = nn.functional.gelu(gate, approximate="tanh")
        x = self._added(x, self.down(activated * up), self.mlp_out_norm)
        return x if parts.output_scale == 1.0 else x * parts.output_scale

    def _normed_heads(self, heads: torch.Tensor) -> torch.Tensor:
        """Return normed queries and keys `[T, H + Hkv, D]`."""
        if self.query_norm is None or self.key_norm is None:
            return heads
        query, key = heads[:, : self.parts.num_heads], heads[:, self.parts.num_heads :]
        if self.parts.is_joint_norm:
            return torch.cat(
                [
                    norm(x.flatten(1)).view(x.shape)
                    for norm, x in ((self.query_norm, query), (self.key_norm, key))
                ],
                1,
            )
        return torch.cat((self.query_norm(query), self.key_norm(key)), 1)

    def _rotated(
        self, heads: torch.Tensor, factors: Mapping[Rotation, tuple[torch.Tensor, torch.Tensor]]
    ) -> torch.Tensor:
        rotation = self.parts.rotation
        if rotation is None:
            return heads
        cos, sin = factors[rotation]
        turned = heads if rotation.width == self.parts.head_dim else heads[..., : rotation.width]
        if rotation.is_interleaved:
            partner = turned.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
        else:
            partner = turned.roll(rotation.width // 2, -1)
        rotated = torch.addcmul(turned * cos, partner, sin)
        return rotated if turned is heads else torch.cat((rotated, heads[..., rotation.width :]), -1)

    def _added(self, x: torch.Tensor, delta: torch.Tensor, norm: FastNorm | None) -> torch.Tensor:
        delta = _normed(delta, norm)
        return x + delta if self.parts.residual_scale == 1.0 else x + delta * self.parts.residual_scale


def _normed(x: torch.Tensor, norm: FastNorm | None) -> torch.Tensor:
    return x if norm is None else norm(x)
