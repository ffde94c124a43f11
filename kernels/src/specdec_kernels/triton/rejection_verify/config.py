"""Launch parameters of the Triton kernels."""

from __future__ import annotations

from specdec_kernels.triton.noise.config import LaunchConfig, heuristic

__all__ = ["LaunchConfig", "heuristic"]
