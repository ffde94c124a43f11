"""specdec-kernels: operations of speculative decoding on the device, each with a plain torch reference."""

from __future__ import annotations

from specdec_kernels.dispatch import Backend, use_backend
from specdec_kernels.greedy_verify import ChainVerdict, greedy_verify

__all__ = ["Backend", "ChainVerdict", "greedy_verify", "use_backend"]
