"""Keys and arguments of vLLM that mean something else here, or nothing: data in `vllm.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from specdec.config.notices import deprecated, notice
from specdec.errors import ConfigError


@dataclass(frozen=True)
class Compatibility:
    """How the names of one source (`speculative_config`, or the arguments of `LLM`) are treated."""

    place: str
    """What messages call the source."""
    notices: Mapping[str, str]
    """Names that change how vLLM runs but not what comes out, and why they do nothing here."""
    refused: Mapping[str, Mapping[str, Any]]
    """Names that would change the result or the memory: the reason, and the values that would not."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Old names and those that took their place."""
    legacy: Mapping[str, str] = field(default_factory=dict)
    """Arguments of `LLM` that became keys of `speculative_config`."""
    renamed_values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Old values of a key and those that took their place."""
    foreign_values: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Values of an argument that both have which only vLLM knows: with them it is a name of `notices`."""

    def is_foreign(self, key: str, value: object) -> bool:
        """Return whether an argument that both have is given a value that only vLLM knows."""
        return value in self.foreign_values.get(key, ())

    def absorbs(self, key: str, value: object) -> bool:
        """Return whether a name is vLLM's and does nothing here, telling so once.

        Raises:
            ConfigError: if it would change the result or the memory.
        """
        if key in self.notices:
            if value is not None:
                notice(
                    f"{self.place}:{key}", f"{self.place}: {key!r} has no effect here: {self.notices[key]}"
                )
            return True
        if key in self.refused:
            rule = self.refused[key]
            if value is None or value in rule["harmless"]:
                return True
            raise ConfigError(f"{self.place}: {key!r} = {value!r} is not supported: {rule['reason']}")
        return False

    def with_new_names(self, mapping: Mapping[str, Any]) -> dict[str, Any]:
        """Return the mapping with old names and values replaced, one deprecation warning each.

        Raises:
            ConfigError: if an old name and the new one are both given.
        """
        result = dict(mapping)
        for old, new in self.renamed.items():
            if old in result:
                if new in result:
                    raise ConfigError(f"{self.place}: {old!r} is the old name of {new!r}; give only {new!r}")
                deprecated(f"{self.place}:{old}", f"{self.place}: {old!r} is now called {new!r}")
                result[new] = result.pop(old)
        for key, values in self.renamed_values.items():
            old_value = result.get(key)
            if isinstance(old_value, str) and old_value in values:
                result[key] = values[old_value]
                deprecated(
                    f"{self.place}:{key}:{old_value}",
                    f"{self.place}: {key!r}: {old_value!r} is now called {result[key]!r}",
                )
        return result


@cache
def speculative_keys() -> Compatibility:
    """Return how vLLM's keys of `speculative_config` are treated."""
    return Compatibility(place="speculative_config", **_data()["speculative_config"])


@cache
def llm_arguments() -> Compatibility:
    """Return how vLLM's arguments of `LLM` are treated."""
    return Compatibility(place="LLM", **_data()["llm"])


def _data() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(files("specdec").joinpath("vllm.json").read_text(encoding="utf-8"))
    return data
