"""The rank of an engine process among several, and its device."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import psutil

from specdec import ConfigError


@dataclass(frozen=True)
class DataParallelRank:
    """One engine among several."""

    index: int
    """Counted from 0."""
    num_engines: int
    cache_bytes: int = 0
    """Its share of the host's memory for KV caches on the CPU; engines that start together see the same memory free."""

    @classmethod
    def each(cls, num_engines: int) -> list[DataParallelRank]:
        """Return the places of so many engines, which may take half of the free memory together."""
        share = int(psutil.virtual_memory().available) // (2 * num_engines)
        return [cls(index, num_engines, share) for index in range(num_engines)]

    def take_memory(self, arguments: dict[str, Any]) -> None:
        """Limit the KV caches of an engine on the CPU, unless its arguments do."""
        import torch

        is_on_cpu = not torch.cuda.is_available() or str(arguments.get("device")).startswith("cpu")
        if is_on_cpu and not {"kv_cache_memory_bytes", "num_gpu_blocks_override"} & arguments.keys():
            arguments["kv_cache_memory_bytes"] = self.cache_bytes

    def take_devices(self, size: int) -> None:
        """Make only this engine's `size` GPUs visible to the process; called before one is used.

        Raises:
            ConfigError: if there are GPUs, but fewer than engines.
        """
        import torch

        num_devices = torch.cuda.device_count()
        if num_devices == 0:
            return
        if num_devices < self.num_engines * size:
            raise ConfigError(
                f"--data-parallel-size {self.num_engines} needs {size} GPU{'s' * (size > 1)} for each engine, and "
                f"{num_devices} are visible: give a smaller size, or --device cpu"
            )
        seen = os.environ.get("CUDA_VISIBLE_DEVICES")
        names = seen.split(",") if seen else list(map(str, range(num_devices)))
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(names[self.index * size :][:size])
