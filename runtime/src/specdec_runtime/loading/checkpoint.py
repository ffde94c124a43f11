"""Reads single tensors from a safetensors checkpoint, sharded or not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import safe_open

from specdec.config import Checkpoint


class SafetensorsReader:
    """Reads tensors by name, including those that the loaded model dropped."""

    def __init__(self, directory: Path) -> None:
        self._checkpoint = Checkpoint(str(directory))

    def names(self) -> Iterator[str]:
        """Yield the names of all tensors."""
        yield from self._checkpoint.tensor_files

    def read(self, name: str) -> torch.Tensor:
        """Return one tensor on the CPU.

        Raises:
            KeyError: naming the tensor and the checkpoint.
        """
        path = self._checkpoint.tensor_files.get(name)
        if path is None:
            raise KeyError(f"{self._checkpoint.directory} has no tensor {name!r}")
        with safe_open(path, "pt") as file:
            tensor: torch.Tensor = file.get_tensor(name)
            return tensor
