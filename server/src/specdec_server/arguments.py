"""Command-line options that are arguments of `LLM`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from specdec import ConfigError, EngineOptions
from specdec.config import notice

_SHORT = {
    "-tp": "tensor_parallel_size",
    "-q": "quantization",
    "-sc": "speculative_config",
}
_FLAGS = frozenset(field.name for field in fields(EngineOptions) if field.type == "bool") | {
    "async_scheduling",
    "calculate_kv_scales",
    "multi_step_stream_outputs",
}
_FLAG_BEGINNINGS = ("enable_", "disable_", "use_")
"""Prefixes of options that need no value, in addition to `_FLAGS`."""
_TEXTS = frozenset(field.name for field in fields(EngineOptions) if str(field.type).startswith("str"))
"""Options whose values are text even if they look like numbers."""
_NO_EFFECT = {
    "enable_auto_tool_choice": "tool_choice may always be auto",
    "enable_reasoning": "--reasoning-parser alone turns it on",
    "disable_log_requests": "what requests say is not logged",
    "enable_log_requests": "what requests say is not logged",
    "max_log_len": "what requests say is not logged",
    "enable_offline_docs": "/docs always is offline",
    "disable_uvicorn_access_log": "use --disable-access-log",
    "uvicorn_log_level": "use --log-level",
    "disable_frontend_multiprocessing": "engine and server share one process",
    "api_server_count": "engine and server share one process",
}
"""Options of vLLM's server that have no effect here, and why."""
_REFUSED = {
    "tool_parser_plugin": "--tool-call-parser takes ./file.py:Class, and plugins are found by themselves",
    "reasoning_parser_plugin": "--reasoning-parser takes ./file.py:Class, and plugins are found by themselves",
    "lora_modules": "adapters are not served; merge them into the model first",
}
"""Options of vLLM's server that are not supported, and why."""


def split_options(words: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Return the positional words and the options that are arguments of `LLM`; underscores and dashes are equivalent.

    Values that are JSON are parsed as JSON. An option without a value is true, and with `--no-` false.

    Args:
        words: command-line words that the command itself does not know.

    Raises:
        ConfigError: for an option that is given twice or lacks its value.
    """
    alone: list[str] = []
    found: dict[str, Any] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not _is_option(word):
            alone.append(word)
            continue
        option, has_value, text = word.partition("=")
        name = _SHORT.get(option) or option[2:].replace("-", "_")
        value: Any
        if has_value:
            value = text if name in _TEXTS else _value_of(text)
        elif name in _FLAGS or name.startswith(_FLAG_BEGINNINGS):
            value = _value_of(rest.pop(0)) if rest and rest[0].lower() in ("true", "false") else True
        elif name.startswith("no_"):
            name, value = name[3:], False
        elif rest and not _is_option(rest[0]):
            text = rest.pop(0)
            value = text if name in _TEXTS else _value_of(text)
        else:
            raise ConfigError(f"{option} needs a value")
        mapping, _, key = name.partition(".")
        place = found.setdefault(mapping, {}) if key else found
        if not isinstance(place, dict) or (key or name) in place:
            raise ConfigError(f"{name} is given twice")
        place[key or name] = value
    return alone, found


def without_foreign(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options without those of vLLM's server that have no effect here, which are logged once.

    Raises:
        ConfigError: for an option that is not supported.
    """
    for name in _REFUSED.keys() & options.keys():
        raise ConfigError(f"--{name.replace('_', '-')} is not supported: {_REFUSED[name]}")
    for name in _NO_EFFECT.keys() & options.keys():
        notice(f"serve:{name}", f"serve: {name!r} has no effect here: {_NO_EFFECT[name]}")
    return {name: value for name, value in options.items() if name not in _NO_EFFECT}


def with_file(arguments: Mapping[str, Any], from_file: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of `LLM` with those of a file for what is not given; numbers are text where text is wanted."""
    texts = {name: str(value) for name, value in from_file.items() if name in _TEXTS}
    return {**from_file, **texts, **arguments}


def _is_option(word: str) -> bool:
    return (word.startswith("--") and len(word) > 2) or word in _SHORT


def _value_of(text: str) -> Any:
    if text in ("True", "False", "None"):
        return {"True": True, "False": False, "None": None}[text]
    try:
        return json.loads(text)
    except ValueError:
        return text
