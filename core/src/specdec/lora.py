"""Adapters (LoRA): how requests and arguments name them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specdec.errors import ConfigError
from specdec.field_docs import show_fields

__all__ = ["LoRARequest"]


@dataclass(frozen=True)
class LoRARequest:
    """An adapter for a request, with vLLM's names: `LLM(..., enable_lora=True)` loads it when it is first used.

    Raises:
        ConfigError: naming the field that is wrong.
    """

    lora_name: str
    """Its name, for messages."""
    lora_int_id: int
    """A number from 1. Weights that are written to the same path later are read under a new number."""
    lora_path: str
    """A directory or hub id with `adapter_config.json` and `adapter_model.safetensors`, as PEFT writes them."""

    def __post_init__(self) -> None:
        for name in ("lora_name", "lora_path"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise ConfigError(
                    f"LoRARequest: {name}={getattr(self, name)!r} must be a text that is not empty"
                )
        if type(self.lora_int_id) is not int or self.lora_int_id < 1:
            raise ConfigError(f"LoRARequest: lora_int_id={self.lora_int_id!r} must be an integer from 1")


show_fields(LoRARequest)


def named_adapters(lora_modules: Any) -> dict[str, LoRARequest]:
    """Return the adapters that `lora_modules` names: a mapping from names to paths, or vLLM's list.

    Raises:
        ConfigError: if it is neither, and for a name that is given twice.
    """
    pairs: list[tuple[Any, Any]]
    if isinstance(lora_modules, Mapping) and not {"name", "path"} <= lora_modules.keys():
        pairs = list(lora_modules.items())
    else:
        given = lora_modules if isinstance(lora_modules, list | tuple) else [lora_modules]
        pairs = [_pair(entry) for entry in given]
    found: dict[str, LoRARequest] = {}
    for number, (name, path) in enumerate(pairs, 1):
        if name in found:
            raise ConfigError(f"LLM: lora_modules names {name!r} twice")
        if not isinstance(name, str) or not name or not isinstance(path, str) or not path:
            raise ConfigError(f"LLM: lora_modules has {name!r}: {path!r}, which is no name and path")
        found[name] = LoRARequest(name, number, path)
    return found


def _pair(entry: object) -> tuple[Any, Any]:
    if isinstance(entry, str) and "=" in entry:
        name, _, path = entry.partition("=")
        return name, path
    if isinstance(entry, Mapping) and {"name", "path"} <= entry.keys() <= {"name", "path", "base_model_name"}:
        return entry["name"], entry["path"]
    raise ConfigError(
        f"LLM: lora_modules has {entry!r}: give a mapping from names to paths, 'NAME=PATH', or "
        '{"name": NAME, "path": PATH}'
    )
