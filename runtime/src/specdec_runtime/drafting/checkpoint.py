"""Reads the checkpoint of a draft head: its `config.json`, and single tensors."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from specdec import ConfigError, ModelError
from specdec.config import Checkpoint, inside, shards_of

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
_LFS_POINTER = b"version https://git-lfs"


class HeadCheckpoint:
    """A directory with `config.json` and safetensors, or the same on a hub; pickles are read only where that is allowed.

    Weights are `model.safetensors`, or the shards named by `model.safetensors.index.json`, or else every
    `*.safetensors` file. Files are read lazily.

    Args:
        path: directory, or hub id; files on a hub are fetched into its cache, as `transformers` does.
        revision: revision on the hub.
        allow_pickle: whether pickles are read, as tensors alone, if there are no safetensors.

    Raises:
        ModelError: if the path does not exist.
    """

    def __init__(self, path: str, revision: str | None = None, *, allow_pickle: bool = False) -> None:
        self.path = path
        """The path as given."""
        self.directory = _directory(path, revision, allow_pickle=allow_pickle)
        """The directory of the files."""
        self._revision, self._allow_pickle = revision, allow_pickle

    def __str__(self) -> str:
        return str(self.directory)

    @cached_property
    def config(self) -> dict[str, Any]:
        """The content of `config.json`.

        Raises:
            ModelError: if there is no such file, or if it holds no mapping.
        """
        file = inside(self.directory, "config.json", self.directory)
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
        return tuple(sorted(self.pickled or self._files))

    def has(self, name: str) -> bool:
        """Return whether there is a tensor of this name.

        Raises:
            ModelError: if there are no safetensors, or damaged ones.
        """
        return name in (self.pickled or self._files)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor without reading it.

        Raises:
            ModelError: if there is no such tensor, or if its file cannot be read.
        """
        if name in self.pickled:
            return tuple(self.pickled[name].shape)
        file = self._file_of(name)
        try:
            with safe_open(file, "pt") as opened:
                return tuple(opened.get_slice(name).get_shape())
        except (SafetensorError, OSError) as error:
            raise ModelError(_unreadable(file, error)) from None

    def check_sizes(self, layer: Mapping[str, Any]) -> None:
        """Refuse layers that are larger than the weights, before memory is taken for them.

        Args:
            layer: configuration of the layers.

        Raises:
            ModelError: naming the key and its value.
        """
        sides = (side for name in self.names() for side in self.shape(name))
        longest = max(sides, default=0)  # parts that are the target's have no tensors
        for key in (
            "hidden_size",
            "intermediate_size",
            "draft_vocab_size",
            "head_dim",
            "num_attention_heads",
        ):
            if (layer.get(key) or 0) > max(longest, layer["vocab_size"]):
                raise ModelError(
                    f"{self.directory}: {key} is {layer[key]}, and no tensor is longer than {longest}: its config.json does "
                    "not belong to these weights"
                )

    def read(self, name: str, shape: Sequence[int] | None = None) -> torch.Tensor:
        """Return one tensor on the CPU, in its stored dtype.

        Args:
            name: name of the tensor.
            shape: the expected shape, if the caller knows it.

        Raises:
            ModelError: if there is no such tensor, if its shape differs, or if its file cannot be read.
        """
        if name in self.pickled and shape in (None, self.shape(name)):
            return self.pickled[name]
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

    @cached_property
    def pickled(self) -> dict[str, torch.Tensor]:
        """The tensors of pickles; empty if there are safetensors, or if pickles are not allowed.

        Raises:
            ModelError: if a pickle is damaged, or holds more than tensors.
        """
        found: dict[str, torch.Tensor] = {}
        for file in self._pickles() if self._allow_pickle and not self._weight_files() else ():
            try:
                held = torch.load(file, map_location="cpu", weights_only=True)
                found |= {name: value for name, value in held.items() if isinstance(value, torch.Tensor)}
            except Exception as error:  # damaged pickles raise errors of many types
                reason = str(error).strip().split("\n")[0]
                raise ModelError(
                    f"{file} cannot be read as tensors ({type(error).__name__}: {reason})"
                ) from None
        return found

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
        single, index = (inside(self.directory, name, self.directory) for name in (WEIGHTS, INDEX))
        if single.is_file():
            return [single]
        if not index.is_file():
            return self._matching("*.safetensors")
        try:
            shards = shards_of(index)
        except ConfigError as error:
            raise ModelError(str(error)) from None
        files = sorted(set(shards.values()))
        for file in files:
            if not file.is_file():
                raise ModelError(f"{index} names {file.name}, which is not there: fetch all shards")
        held = {name for file in files for name in _tensors(file)}
        missing = sorted(set(shards) - held)
        if missing:
            raise ModelError(
                f"{index} names tensor {missing[0]!r}, which is not in {shards[missing[0]].name}: fetch index and shards again"
            )
        return files

    def _pickles(self) -> list[Path]:
        return sorted(file for pattern in _PICKLES for file in self._matching(pattern))

    def _matching(self, pattern: str) -> list[Path]:
        return sorted(
            inside(self.directory, file.name, self.directory) for file in self.directory.glob(pattern)
        )

    def _without_weights(self) -> str:
        names = [str(file) for file in self._pickles()]
        if not names and not os.path.isdir(self.path):
            names = [f"{self.path}/{name}" for name in _hub_pickles(self.path, self._revision)]
        if not names:
            return f"{self.directory} has no *.safetensors, and nothing else is read: fetch or convert the head's weights"
        return (
            f"{names[0]} is a pickle, and only safetensors are read: convert it once, with `specdec convert {self.path} OUT "
            "--to published`"
        )


def _directory(path: str, revision: str | None, *, allow_pickle: bool) -> Path:
    """Return the directory of a head's files; they are fetched if they are on a hub."""
    seen = Checkpoint(path, revision)
    if seen.is_directory:
        return seen.directory
    if os.path.isfile(seen.directory):
        raise ModelError(f"{path} is a file: give the directory that holds config.json and the weights")
    if seen.leads_nowhere:
        raise ModelError(f"{seen.problem}: give the directory or hub id of a draft head")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    patterns = ["*.json", "*.safetensors", *(_PICKLES if allow_pickle else ())]
    try:
        return Path(snapshot_download(path, revision=revision, allow_patterns=patterns))
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(
            f"{path!r} is not a directory, and its files cannot be fetched from a hub or read from its "
            f"cache ({reason}): check the name" + ("" if revision is None else f" and revision {revision!r}")
        ) from None


def _hub_pickles(repository: str, revision: str | None) -> list[str]:
    """Return the names of the pickles of a repository; none if the hub cannot be asked."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

    try:
        names = HfApi().list_repo_files(repository, revision=revision)
    except (HfHubHTTPError, HFValidationError, OfflineModeIsEnabled, OSError):
        return []
    return [name for name in names if any(fnmatch(name, pattern) for pattern in _PICKLES)]


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
