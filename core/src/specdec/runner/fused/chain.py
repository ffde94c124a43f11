"""Drafts chains with a model whose layers run compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from specdec.interfaces.draws import NoiseKeys
from specdec.runner.fused.host_layers import HostLayers
from specdec.runner.host.chain import run_chain
from specdec.runner.host.product import MAX_PRODUCT_ROWS, compact

if TYPE_CHECKING:
    from specdec.runner.model_runner import ModelRunner

Ints = npt.NDArray[np.int64]


class HostChain:
    """The whole draft loop of a model in one call, where that can be.

    Args:
        layers: the compiled layers.
        embedding: `[Vd, H]` the input embedding.
        head: `[Vd, H]` weight of the output projection, which has no bias.
    """

    def __init__(self, layers: HostLayers, embedding: torch.Tensor, head: torch.Tensor) -> None:
        self._layers = layers
        stored = compact(head)
        is_tied = head.data_ptr() == embedding.data_ptr()
        looked_up = stored if is_tied else compact(embedding)
        assert stored is not None and looked_up is not None  # compiled layers are on the host, in these types
        self._head, self._embedding = stored, looked_up

    def draft(
        self,
        runner: ModelRunner,
        logits: torch.Tensor,
        first_slots: Sequence[int],
        num_cached: Sequence[int],
        num_steps: int,
        temperatures: Sequence[float],
        keys: NoiseKeys,
        num_ids: int,
    ) -> Ints:
        """Return `[B, num_steps]` token ids; see `ModelRunner.draft_chain`."""
        out = np.empty((len(first_slots), num_steps), np.int64)
        segments = np.array(
            [range(len(first_slots)), [1] * len(first_slots), first_slots, num_cached], np.int64
        )
        stack, buffers, cos, sin = self._layers.chain_parts(len(first_slots), max(num_cached) + num_steps)
        layer = stack.layers[0]
        run_chain(
            logits.float().contiguous().numpy(), num_ids, np.array(temperatures, np.float32), keys.seeds, keys.samples,
            keys.positions, self._embedding, self._head, stack.table, stack.first_norm, stack.epsilon,
            stack.head_epsilon, np.float32(layer.scaling), layer.num_kv_heads, stack.bind(runner.cache),
            runner.cache.num_slots, cos, sin, segments, buffers.query, buffers.attended, buffers.activated,
            buffers.normed, out,
        )  # fmt: skip
        return out


MAX_CHAIN_ROWS = MAX_PRODUCT_ROWS
"""Beyond this many rows blocked products win."""
