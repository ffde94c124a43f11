"""Memory bandwidth of a device."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from device.clock import best_ms

PEAK_TB_PER_S = {
    "NVIDIA A100 80GB PCIe": 1.935,
    "NVIDIA A100-PCIE-40GB": 1.555,
    "NVIDIA A100-SXM4-40GB": 1.555,
    "NVIDIA A100-SXM4-80GB": 2.039,
    "NVIDIA B200": 8.0,
    "NVIDIA GeForce RTX 3090": 0.936,
    "NVIDIA GeForce RTX 4090": 1.008,
    "NVIDIA H100 80GB HBM3": 3.35,
    "NVIDIA H100 NVL": 3.94,
    "NVIDIA H100 PCIe": 2.04,
    "NVIDIA H200": 4.8,
    "NVIDIA L4": 0.3,
    "NVIDIA L40S": 0.864,
}
"""Vendors' figures, keyed by torch's device name."""
_COPIED_BYTES = 2**30


@dataclass(frozen=True)
class Bandwidth:
    """Bytes that a device moves to and from its memory."""

    tb_per_s: float
    """The value used for bounds."""
    source: str
    """`vendor`, or `copy` for devices missing from the table."""
    copy_tb_per_s: float
    """Measured by copying a gigabyte; counts bytes read and written."""

    def ms(self, num_bytes: float) -> float:
        """Return the minimum time to move `num_bytes`."""
        return num_bytes / self.tb_per_s / 1e9


def bandwidth_of(device: torch.device) -> Bandwidth | None:
    """Return the bandwidth of a GPU; None for other devices, whose caches make such a bound meaningless."""
    if device.type != "cuda":
        return None
    source = torch.zeros(_COPIED_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copied = 2 * _COPIED_BYTES / best_ms(lambda: target.copy_(source), device) / 1e9
    peak = PEAK_TB_PER_S.get(torch.cuda.get_device_name(device))
    if peak is None:
        return Bandwidth(copied, "copy", copied)
    return Bandwidth(peak, "vendor", copied)
