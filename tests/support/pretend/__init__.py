"""A pretend CUDA device: the device path runs on the host's memory, under a device's rules, and what it asks for is counted."""

from pretend.counts import Counts
from pretend.device import PretendDevice
from pretend.tensor import CUDA

__all__ = ["CUDA", "Counts", "PretendDevice"]
