"""Reads the checkpoint of a draft head: its `config.json`, and single tensors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from specdec import ModelError
from specdec.config import Checkpoint

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
_LFS_POINTER = b"version https://git-lfs"


class HeadCheckpoint:
    """A directory with `config.json` and safetensors, or the same on a hub; nothing is unpickled.

    Weights are `model.safetensors`, or the shards named by `model.safetensors.index.json`, or else every
    `*.safetensors` file. Files are read lazily.

    Args:
        path: directory, or hub id; files on a hub are fetched into its cache, as `transformers` does.
        revision: revision on the hub.

    Raises:
        ModelError: if the path does not exist.
    """

    def __init__(self, path: str, revision: str | None = None) -> None:
        self.path = path
        """The path as given."""
        self.directory = _directory(path, revision)
        """The directory of the files."""

    def __str__(self) -> str:
        return str(self.directory)

    @cached_property
    def config(self) -> dict[str, Any]:
        """The content of `config.json`.

        Raises:
            ModelError: if there is no such file, or if it holds no mapping.
        """
        file = self.directory / "config.json"
        if not file.is_file():
            raise ModelError(
                f"{self.directory} has no config.json: give the directory that holds a head's config.json and weights"
            )
        found = _json(file)
        if not isinstance(found, dict):
            raise ModelError(f"{file} holds no mapping: it is not the configuration of a head")
        return found

    def names(self) -> tuple[str, ...]:
        """Return the names of all tensors, sorted.

        Raises:
            ModelError: if there are no safetensors, or damaged ones.
        """
        return tuple(sorted(self._files))

    def has(self, name: str) -> bool:
        """Return whether there is a tensor of this name.

        Raises:
            ModelError: if there are no safetensors, or damaged ones.
        """
        return name in self._files

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor without reading it.

        Raises:
            ModelError: if there is no such tensor, or if its file cannot be read.
        """
        file = self._file_of(name)
        try:
            with safe_open(file, "pt") as opened:
                return tuple(opened.get_slice(name).get_shape())
        except (SafetensorError, OSError) as error:
            raise ModelError(_unreadable(file, error)) from None

    def read(self, name: str, shape: Sequence[int] | None = None) -> torch.Tensor:
        """Return one tensor on the CPU, in its stored dtype.

        Args:
            name: name of the tensor.
            shape: the expected shape, if the caller knows it.

        Raises:
            ModelError: if there is no such tensor, if its shape differs, or if its file cannot be read.
        """
        file = self._file_of(name)
        if shape is not None and self.shape(name) != tuple(shape):
            raise ModelError(
                f"{file}: tensor {name!r} has shape {list(self.shape(name))} instead of {list(shape)}: config.json does "
                "not belong to these weights"
            )
        try:
            with safe_open(file, "pt") as opened:
                tensor: torch.Tensor = opened.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise ModelError(_unreadable(file, error)) from None
        return tensor

    def _file_of(self, name: str) -> Path:
        file = self._files.get(name)
        if file is None:
            raise ModelError(
                f"{self.directory} has no tensor {name!r}: its config.json does not belong to these weights, or they are of "
                f"another method; it has {_some(get_close_matches(name, self.names(), 3, 0.6) or self.names())}"
            )
        return file

    @cached_property
    def _files(self) -> dict[str, Path]:
        """The file of each tensor."""
        files = self._weight_files()
        if not files:
            raise ModelError(self._without_weights())
        found: dict[str, Path] = {}
        for file in files:
            for name in _tensors(file):
                if name in found:
                    raise ModelError(
                        f"{found[name]} and {file.name} both hold a tensor {name!r}: leave one of the files there"
                    )
                found[name] = file
        return found

    def _weight_files(self) -> list[Path]:
        """Return the files to read, in the order in which `transformers` looks for them."""
        single, index = self.directory / WEIGHTS, self.directory / INDEX
        if single.is_file():
            return [single]
        if not index.is_file():
            return sorted(self.directory.glob("*.safetensors"))
        weight_map = _json(index)
        weight_map = weight_map.get("weight_map") if isinstance(weight_map, dict) else None
        if not isinstance(weight_map, dict) or not all(isinstance(v, str) for v in weight_map.values()):
            raise ModelError(f"{index} has no 'weight_map' from tensors to files: fetch it again")
        files = [self.directory / name for name in sorted(set(weight_map.values()))]
        for file in files:
            if not file.is_file():
                raise ModelError(f"{index} names {file.name}, which is not there: fetch all shards")
        held = {name for file in files for name in _tensors(file)}
        missing = sorted(set(weight_map) - held)
        if missing:
            raise ModelError(
                f"{index} names tensor {missing[0]!r}, which is not in {weight_map[missing[0]]}: fetch index and shards again"
            )
        return files

    def _without_weights(self) -> str:
        pickles = sorted(file for pattern in _PICKLES for file in self.directory.glob(pattern))
        if not pickles:
            return f"{self.directory} has no *.safetensors, and nothing else is read: fetch or convert the head's weights"
        return (
            f"{pickles[0]} is a pickle, and only safetensors are read: convert it once, for example with "
            "safetensors.torch.save_file({k: v.clone() for k, v in "
            f"torch.load({pickles[0].name!r}, weights_only=True).items()}}, {WEIGHTS!r}), leaving out what is not a tensor"
        )


def _directory(path: str, revision: str | None) -> Path:
    """Return the directory of a head's files; they are fetched if they are on a hub."""
    seen = Checkpoint(path, revision)
    if seen.directory.is_dir():
        return seen.directory
    if seen.directory.is_file():
        raise ModelError(f"{path} is a file: give the directory that holds config.json and the weights")
    if seen.leads_nowhere:
        raise ModelError(f"{seen.problem}: give the directory or hub id of a draft head")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(path, revision=revision, allow_patterns=["*.json", "*.safetensors"]))
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(
            f"{path!r} is not a directory, and its files cannot be fetched from a hub or read from its "
            f"cache ({reason}): check the name" + ("" if revision is None else f" and revision {revision!r}")
        ) from None


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{file} cannot be read ({error}): fetch it again") from None


def _tensors(file: Path) -> Iterator[str]:
    """Yield the tensor names of a file; opening it checks its header against its length."""
    try:
        with safe_open(file, "pt") as opened:
            yield from opened.keys()
    except (SafetensorError, OSError) as error:
        raise ModelError(_unreadable(file, error)) from None


def _unreadable(file: Path, error: Exception) -> str:
    with file.open("rb") as stream:
        if stream.read(len(_LFS_POINTER)) == _LFS_POINTER:
            return f"{file} is a pointer of Git LFS and not the weights: run `git lfs pull` there"
    return f"{file} is cut short or no safetensors file ({error}): fetch it again"


def _some(names: Sequence[str]) -> str:
    """Return the first few names, and the number of the others."""
    shown = ", ".join(names[:4]) or "none"
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more"
