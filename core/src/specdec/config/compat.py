"""vLLM keys and arguments that have another meaning or no effect here; the data is in `vllm.json`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from specdec.config.notices import deprecated, notice
from specdec.errors import ConfigError
from specdec.messages import unknown_key

TARGET_KEY = "speculative_config"


@dataclass(frozen=True)
class Compatibility:
    """How names from one source (`speculative_config` or the arguments of `LLM`) are handled."""

    origin: str
    """The name of the source in messages."""
    notices: Mapping[str, str]
    """Names that change how vLLM runs but not its output, with the reason why they have no effect here."""
    refused: Mapping[str, Mapping[str, Any]]
    """Names that would change the output or the memory use: the reason, and the values that are harmless."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Old names and their replacements."""
    legacy: Mapping[str, str] = field(default_factory=dict)
    """Arguments of `LLM` that became keys of `speculative_config`."""
    renamed_values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Old values of a key and their replacements."""
    foreign_values: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Values that only vLLM knows, of arguments that both have. With such a value the argument is handled as in `notices`."""

    def is_foreign(self, key: str, value: object) -> bool:
        """Return whether a shared argument has a value that only vLLM knows."""
        return value in self.foreign_values.get(key, ())

    def absorbs(self, key: str, value: object) -> bool:
        """Return whether a name is vLLM's and has no effect here; logs this once.

        Raises:
            ConfigError: if it would change the output or the memory use.
        """
        if key in self.notices:
            if value is not None:
                notice(
                    f"{self.origin}:{key}", f"{self.origin}: {key!r} has no effect here: {self.notices[key]}"
                )
            return True
        if key in self.refused:
            rule = self.refused[key]
            if value is None or value in rule["harmless"]:
                return True
            raise ConfigError(f"{self.origin}: {key!r} = {value!r} is not supported: {rule['reason']}")
        return False

    def with_new_names(self, mapping: Mapping[str, Any]) -> dict[str, Any]:
        """Return the mapping with old names and values replaced, with one deprecation warning each.

        Raises:
            ConfigError: if an old name and the new one are both given.
        """
        result = dict(mapping)
        for old, new in self.renamed.items():
            if old in result:
                if new in result:
                    raise ConfigError(f"{self.origin}: {old!r} is the old name of {new!r}; give only {new!r}")
                deprecated(f"{self.origin}:{old}", f"{self.origin}: {old!r} is now called {new!r}")
                result[new] = result.pop(old)
        for key, values in self.renamed_values.items():
            old_value = result.get(key)
            if isinstance(old_value, str) and old_value in values:
                result[key] = values[old_value]
                deprecated(
                    f"{self.origin}:{key}:{old_value}",
                    f"{self.origin}: {key!r}: {old_value!r} is now called {result[key]!r}",
                )
        return result


@cache
def speculative_keys() -> Compatibility:
    """Return how vLLM's keys of `speculative_config` are handled."""
    return Compatibility(origin="speculative_config", **_data()["speculative_config"])


@cache
def llm_arguments() -> Compatibility:
    """Return how vLLM's arguments of `LLM` are handled."""
    return Compatibility(origin="LLM", **_data()["llm"])


@cache
def call_arguments(call: str) -> Compatibility:
    """Return how vLLM's arguments of a call, such as `LLM.generate`, are handled."""
    return Compatibility(origin=call, **_data()["call"])


def check_call(call: str, arguments: Mapping[str, Any], known: Iterable[str]) -> None:
    """Check arguments that a call does not have itself.

    Args:
        call: such as `LLM.generate`.
        arguments: by name.
        known: the arguments that the call has.

    Raises:
        ConfigError: for every argument but those of vLLM that have no effect.
    """
    for name, value in arguments.items():
        if not call_arguments(call).absorbs(name, value):
            raise ConfigError(f"{call}: {unknown_key(name, known)}")


def translate_llm_arguments(arguments: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Return the arguments of `LLM` under their current names: names in `known`, and `speculative_config`.

    Older speculative arguments (`speculative_model=...`) move into `speculative_config`, with one deprecation
    warning each. Arguments of vLLM that change only how vLLM runs are dropped, with one notice each.

    Args:
        arguments: the user's arguments, by name.
        known: the names that `LLM` currently accepts.

    Raises:
        ConfigError: for arguments that are unknown, unsupported, or given both in the old and the new form.
    """
    compat = llm_arguments()
    result: dict[str, Any] = {}
    old: dict[str, Any] = {}
    for name, value in arguments.items():
        if name == TARGET_KEY or (name in known and not compat.is_foreign(name, value)):
            result[name] = value
        elif name in compat.legacy:
            if value is not None:
                new = compat.legacy[name]
                deprecated(
                    f"LLM:{name}",
                    f"LLM({name}=...) is now a key of speculative_config: {{{new!r}: {value!r}}}",
                )
                old[new] = value
        elif not compat.absorbs(name, value):
            raise ConfigError(f"LLM: {unknown_key(name, {*known, TARGET_KEY})}")
    if old:
        if result.get(TARGET_KEY) is not None:
            raise ConfigError(
                f"LLM: {', '.join(sorted(old))} given both as older arguments and beside speculative_config: "
                "put everything into speculative_config"
            )
        result[TARGET_KEY] = old
    return result


def _data() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(files("specdec").joinpath("vllm.json").read_text(encoding="utf-8"))
    return data
