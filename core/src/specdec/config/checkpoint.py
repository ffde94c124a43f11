"""Reads a checkpoint's `config.json` and tensor names without loading weights."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

from specdec.config.file_kind import kind_of
from specdec.config.hub import HUB_ID, is_hub_reachable
from specdec.config.named_files import check_entries, inside, names_in
from specdec.config.zoo import PACKAGED, ZOO
from specdec.errors import ConfigError

HEADER_LIMIT = 100_000_000
INDEX = "model.safetensors.index.json"
_OF_PICKLES = "pytorch_model.bin.index.json"
OLD_IDS = frozenset({"gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "distilgpt2"})
"""Decoders whose hub ids have no owner. Any other name without an owner is treated as a mistyped directory."""


class Checkpoint:
    """Reads the metadata of a checkpoint, from a directory or from the hub's cache.

    Args:
        model: directory or hub id.
        revision: revision on the hub.
    """

    def __init__(self, model: str, revision: str | None = None) -> None:
        self.model = model
        self.revision = revision

    @cached_property
    def config(self) -> Mapping[str, Any] | None:
        """The `config.json`, or None if it cannot be found (see `problem`)."""
        file = self.file("config.json")
        if file is None:
            return None
        return read_mapping_of(file)

    @property
    def architectures(self) -> tuple[str, ...]:
        """The `architectures` of `config`, which vLLM and exporters tell methods by.

        Raises:
            ConfigError: if they are no list of names.
        """
        found = (self.config or {}).get("architectures") or []
        if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
            raise ConfigError(
                f"{self.model}: 'architectures' of its config.json is {found!r} instead of a list of names: fetch it again"
            )
        return tuple(found)

    @cached_property
    def tensor_files(self) -> Mapping[str, Path]:
        """The file of each tensor, from the index or headers of safetensors files; empty if there are none."""
        if not self.is_directory:
            return {}
        if (index := self.file(INDEX)) is not None:
            return shards_of(index)
        files = [
            inside(self.directory, file.name, self.directory)
            for file in sorted(self.directory.glob("*.safetensors"))
        ]
        return {name: file for file in files for name in _header(file) if name != "__metadata__"}

    def check_names(self) -> None:
        """Raise if a file that it has or names is outside its folder; called before `transformers` opens any of them.

        Raises:
            ConfigError: for a file with names that cannot be read.
            ModelError: naming the file, and what it names.
        """
        if self.is_directory:
            check_entries(self.directory)
        for name in (INDEX, _OF_PICKLES):
            if (file := self.file(name)) is not None:
                shards_of(file)
        for name in ("config.json", "tokenizer_config.json"):
            if (file := self.file(name)) is not None:
                for key, value in names_in(file, read_mapping_of(file)):
                    inside(file.parent, value, f"{key!r} of {file}")

    @property
    def directory(self) -> Path:
        """The directory of the files; for a hub id a path that does not exist."""
        return Path(os.path.expanduser(self.model))

    @property
    def is_directory(self) -> bool:
        """Whether the model is a directory; false for a name that no file system takes."""
        return os.path.isdir(self.directory)

    @property
    def problem(self) -> str:
        """Why `config` is None."""
        if self.is_directory:
            return f"{self.directory} has no config.json"
        if os.path.isfile(self.directory):
            return f"{self.model!r} is {kind_of(self.directory)}: give the directory of config.json and weights, or a GGUF file"
        if not self.is_hub_id:
            return f"there is no directory {self.model!r}"
        if "/" not in self.model:
            nearest = get_close_matches(self.model.lower(), (ZOO, *PACKAGED), n=1)
            hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
            return f"there is no directory {self.model!r}{hint}, and a hub id is 'owner/name'"
        return f"{self.model!r} is not a directory, and its config.json cannot be fetched from a hub or read from its cache"

    def number(self, *keys: str) -> int | None:
        """Return the value of the first key of `config` that holds a positive integer; dots reach into nested mappings."""
        return find_number(self.config or {}, *keys)

    def file(self, name: str) -> Path | None:
        """Return one of the files, fetched from the hub if it is not cached; None if there is none of that name."""
        if self.is_directory:
            file = inside(self.directory, name, self.directory)
            return file if file.is_file() else None
        return _from_hub(self.model, name, self.revision) if self.is_hub_id else None

    @property
    def leads_nowhere(self) -> bool:
        """Whether the name is neither a directory, nor a possible hub id, nor cached. Does not contact the hub."""
        if self.is_directory or (self.is_hub_id and _is_asked_for(self.model)):
            return False
        return self.config is None

    @property
    def is_hub_id(self) -> bool:
        """Whether the name has the form `name` or `owner/name` and is not a path."""
        return HUB_ID.fullmatch(self.model) is not None and not os.path.exists(self.directory)


def find_number(config: Mapping[str, Any], *keys: str) -> int | None:
    """Return the value of the first key that holds a positive integer; dots reach into nested mappings."""
    for key in keys:
        found: Any = config
        for part in key.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        if isinstance(found, int) and not isinstance(found, bool) and found > 0:
            return found
    return None


def shards_of(index: Path) -> dict[str, Path]:
    """Return the file of each tensor that an index lists.

    Raises:
        ConfigError: if it cannot be read, or does not list files.
        ModelError: if it lists a file outside its folder.
    """
    found = _json_of(index)
    if not isinstance(found, dict):
        raise ConfigError(f"{index} does not hold a mapping: it has no 'weight_map', fetch it again")
    weight_map = found.get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise ConfigError(f"{index} has no 'weight_map' from tensors to files: fetch it again")
    files = {name: inside(index.parent, name, index) for name in set(weight_map.values())}
    return {tensor: files[name] for tensor, name in weight_map.items()}


def read_mapping_of(file: Path) -> dict[str, Any]:
    """Return the mapping in a JSON file.

    Raises:
        ConfigError: naming the file, if it cannot be read or holds no mapping.
    """
    found = _json_of(file)
    if not isinstance(found, dict):
        raise ConfigError(f"{file} does not hold a mapping")
    return found


def _json_of(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # the last for lists in lists, thousands deep
        raise ConfigError(f"{file} cannot be read: {error}") from None


def _header(file: Path) -> Mapping[str, Any]:
    try:
        with file.open("rb") as stream:
            size = int.from_bytes(stream.read(8), "little")
            fits = size <= min(HEADER_LIMIT, file.stat().st_size)
            header = json.loads(stream.read(size)) if fits else None
    except (OSError, ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise ConfigError(f"{file} is not a safetensors file")
    return header


def _is_asked_for(model: str) -> bool:
    """Return whether the hub may be queried for a name."""
    return model in OLD_IDS or "/" in model


def _from_hub(model: str, name: str, revision: str | None) -> Path | None:
    """Return a file of a hub repository, from the cache if present; None if it is not available."""
    from huggingface_hub import hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        cached = try_to_load_from_cache(model, name, revision=revision)
        if isinstance(cached, str):
            return Path(cached)
        if not _is_asked_for(model) or not is_hub_reachable():
            return None
        return Path(hf_hub_download(model, name, revision=revision))
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OSError):
        return None
