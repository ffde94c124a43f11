"""MoE experts: stored individually, computed as stacked tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specdec_plugin_mtp.tensors import MtpTensors

_STACKED = {"mlp.experts.gate_up_proj": ("gate_proj", "up_proj"), "mlp.experts.down_proj": ("down_proj",)}


def read_weight(tensors: MtpTensors, name: str, shape: Sequence[int]) -> torch.Tensor:
    """Return a tensor by its published name; individually stored experts are stacked.

    Args:
        tensors: the checkpoint.
        name: published name; for experts the name of the stacked tensor `[E, ...]`.
        shape: expected shape.

    Raises:
        ModelError: if a tensor is missing or has another shape.
    """
    stack = next((end for end in _STACKED if name.endswith(end)), None)
    if stack is None or name in tensors.names:
        return tensors.read(name, shape)
    start = name.removesuffix(stack)
    num_experts, rows, columns = shape
    parts = _STACKED[stack]
    experts = [
        torch.cat(
            [
                tensors.read(f"{start}mlp.experts.{e}.{part}.weight", (rows // len(parts), columns))
                for part in parts
            ]
        )
        for e in range(num_experts)
    ]
    return torch.stack(experts)
