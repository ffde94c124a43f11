"""Attention over a packed pass, as a backend provides it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from specdec_runtime.interfaces.forward import PackedBatch
from specdec_runtime.interfaces.kv_cache import KVCache


class Attention(Protocol):
    """Attention over a packed batch on one cache. One instance serves one model."""

    def attend(
        self,
        layer: int,
        batch: PackedBatch,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scaling: float,
        window: int | None = None,
        softcap: float | None = None,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Write keys and values to the cache and attend.

        Args:
            layer: index of the layer.
            batch: the packed pass.
            query: `[T, H, Dk]`.
            key: `[T, Hkv, Dk]`.
            value: `[T, Hkv, Dv]`.
            scaling: factor on the scores.
            window: sliding window: the number of positions a row attends to, itself included; None means all.
            softcap: scores become `softcap * tanh(scores / softcap)`.
            sinks: `[H]` attention sinks: logits that take part in the softmax and carry no value.

        Returns:
            `[T, H, Dv]`.
        """


AttentionFactory = Callable[[KVCache, int], Attention]
"""Makes attention for a cache and the maximum sequence length, in tokens."""


@dataclass(frozen=True)
class AttentionNeeds:
    """What a model needs of its attention."""

    device: torch.device
    dtype: torch.dtype
    """Dtype of keys and values."""
    is_invariant: bool = False
    """Whether the result of a row must be bit-identical whatever else is in the pass."""
    is_requested: bool = False
    """Whether the user named this backend (`attention_backend`): then it may also run where it is slow."""
