"""Legacy arguments of `LLM`, and arguments of vLLM that have no effect here."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from specdec.config.compat import llm_arguments
from specdec.config.notices import deprecated
from specdec.errors import ConfigError
from specdec.messages import unknown_key

TARGET_KEY = "speculative_config"


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
