"""Reads single tensors from a safetensors checkpoint, sharded or not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import safe_open


class SafetensorsReader:
    """Reads tensors by name, including those that the loaded model dropped."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[str, Path] | None = None

    def names(self) -> Iterator[str]:
        """Yield the names of all tensors."""
        yield from self._index()

    def read(self, name: str) -> torch.Tensor:
        """Return one tensor on the CPU.

        Raises:
            KeyError: naming the tensor and the checkpoint.
        """
        path = self._index().get(name)
        if path is None:
            raise KeyError(f"{self._directory} has no tensor {name!r}")
        with safe_open(path, "pt") as file:
            tensor: torch.Tensor = file.get_tensor(name)
            return tensor

    def _index(self) -> dict[str, Path]:
        if self._files is None:
            self._files = dict(self._scan())
        return self._files

    def _scan(self) -> Iterator[tuple[str, Path]]:
        index = self._directory / "model.safetensors.index.json"
        if index.exists():
            for name, file in json.loads(index.read_text())["weight_map"].items():
                yield name, self._directory / file
            return
        for path in sorted(self._directory.glob("*.safetensors")):
            with safe_open(path, "pt") as file:
                for name in file.keys():  # noqa: SIM118  safe_open is not a mapping
                    yield name, path
