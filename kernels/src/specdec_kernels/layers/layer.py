"""One decoder layer of the Llama structure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import nn

from specdec.interfaces import Attention, PackedBatch
from specdec_kernels.layers.linear import JoinedLinear
from specdec_kernels.layers.norm import FastNorm
from specdec_kernels.layers.structure import is_silu

L = TypeVar("L", bound=JoinedLinear)


class FusedLayer(Generic[L]):
    """The arithmetic of a Llama-like layer with joined projections.

    Args:
        layer: the `transformers` layer; its weights are re-arranged in place and stay shared.
        window: the sliding window that the layer passes to attention; not all modules keep it as an attribute.
        make_linear: makes the joined products.
    """

    def __init__(
        self,
        layer: nn.Module,
        window: int | None,
        *,
        make_linear: Callable[[list[nn.Linear]], L],
    ) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        assert isinstance(attention, nn.Module) and isinstance(mlp, nn.Module)
        self.index: int = attention.layer_idx  # type: ignore[assignment]  # transformers sets an int
        self.scaling: float = attention.scaling  # type: ignore[assignment]  # transformers sets a float
        self.head_dim: int = attention.head_dim  # type: ignore[assignment]  # transformers sets an int
        self.window = window
        projections = [getattr(attention, f"{name}_proj") for name in "qkv"]
        self.num_heads, self.num_kv_heads, _ = (p.out_features // self.head_dim for p in projections)

        def linear(*modules: nn.Module) -> L:
            listed: list[nn.Linear] = list(modules)  # type: ignore[arg-type]  # checked by structure
            return make_linear(listed)

        self.qkv = linear(*projections)
        self.out = linear(attention.o_proj)  # type: ignore[arg-type]  # ditto
        self.gate_up = linear(mlp.gate_proj, mlp.up_proj)  # type: ignore[arg-type]  # ditto
        self.down = linear(mlp.down_proj)  # type: ignore[arg-type]  # ditto
        self.linears = (self.qkv, self.out, self.gate_up, self.down)
        first = getattr(layer, "input_layernorm", None)
        self.input_norm = None if first is None else self.make_norm(first)
        self.post_norm = self.make_norm(layer.post_attention_layernorm)  # type: ignore[arg-type]  # ditto
        has_norms = hasattr(attention, "q_norm")
        self.query_norm = self.make_norm(attention.q_norm) if has_norms else None  # type: ignore[arg-type]  # ditto
        self.key_norm = self.make_norm(attention.k_norm) if has_norms else None  # type: ignore[arg-type]  # ditto
        self.activation: nn.Module = mlp.act_fn  # type: ignore[assignment]  # ditto
        self.is_silu = is_silu(self.activation)
        self.intermediate = self.gate_up.weight.shape[0] // 2

    def make_norm(self, module: nn.Module) -> FastNorm:
        """Return the norm of a module of the layer."""
        return FastNorm(module)

    def forward(
        self,
        x: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        batch: PackedBatch,
        attention: Attention,
    ) -> torch.Tensor:
        """Return the layer's output `[T, H]` for input `x [T, H]`; `cos`, `sin` are `[T, 1, D]`, `sin` signed."""
        num_rows = x.shape[0]
        assert (
            self.input_norm is not None
        )  # only heads have layers without an input norm, and heads run compiled or through their own forward
        heads = self.qkv(self.input_norm(x)).view(num_rows, -1, self.head_dim)
        num_rotated = self.num_heads + self.num_kv_heads
        rotated = heads[:, :num_rotated]
        if self.query_norm is not None and self.key_norm is not None:
            rotated = torch.cat(
                (self.query_norm(rotated[:, : self.num_heads]), self.key_norm(rotated[:, self.num_heads :])),
                1,
            )
        rotated = torch.addcmul(rotated * cos, rotated.roll(self.head_dim // 2, -1), sin)
        attended = attention.attend(
            self.index,
            batch,
            rotated[:, : self.num_heads],
            rotated[:, self.num_heads :],
            heads[:, num_rotated:],
            scaling=self.scaling,
            window=self.window,
        )
        x = x + self.out(attended.reshape(num_rows, -1))
        gate, up = self.gate_up(self.post_norm(x)).split(self.intermediate, -1)
        return x + self.down(self.activation(gate) * up)
