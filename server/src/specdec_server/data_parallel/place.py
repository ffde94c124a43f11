"""The rank of an engine process among several, and its device."""

from __future__ import annotations

import os
from dataclasses import dataclass

from specdec import ConfigError


@dataclass(frozen=True)
class Place:
    """One engine among several."""

    index: int
    """Counted from 0."""
    num_engines: int

    def take_device(self) -> None:
        """Make only this engine's GPU visible to the process; call it before the process uses a GPU.

        Raises:
            ConfigError: if there are GPUs, but fewer than engines.
        """
        import torch

        num_devices = torch.cuda.device_count()
        if num_devices == 0:
            return
        if num_devices < self.num_engines:
            raise ConfigError(
                f"--data-parallel-size {self.num_engines} needs a GPU for each engine, and {num_devices} are visible: "
                "give a smaller size, or --device cpu"
            )
        seen = os.environ.get("CUDA_VISIBLE_DEVICES")
        names = seen.split(",") if seen else list(map(str, range(num_devices)))
        os.environ["CUDA_VISIBLE_DEVICES"] = names[self.index]
