"""Truncation of requests, as tensors."""

from __future__ import annotations

from typing import NamedTuple

import torch


class RequestCuts(NamedTuple):
    """Top-k and then top-p, as in `Cuts`; those of requests with temperature 0 are not read."""

    top_k: torch.Tensor
    """`[B]` int32 or int64."""
    top_p: torch.Tensor
    """`[B]` float32."""
