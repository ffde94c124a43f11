"""All kernel cases."""

from __future__ import annotations

from device.cases import cache, layers, lookup, sampling, verification
from device.kernel_case import KernelCase

CASES: tuple[KernelCase, ...] = (
    *cache.CASES,
    *layers.CASES,
    *sampling.CASES,
    *verification.CASES,
    *lookup.CASES,
)
