"""Command-line options that are arguments of `LLM`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from specdec import ConfigError
from specdec.config.notices import notice
from specdec.engine.options import EngineOptions

_SHORT = {"-tp": "tensor_parallel_size", "-dp": "data_parallel_size", "-q": "quantization"}
_FLAGS = frozenset(field.name for field in fields(EngineOptions) if field.type == "bool") | {
    "use_v2_block_manager",
    "disable_log_requests",
    "enable_log_requests",
}
"""Options that need no value."""
_NO_EFFECT = {
    "disable_log_requests": "requests are not logged",
    "enable_log_requests": "requests are not logged",
    "max_log_len": "requests are not logged",
    "uvicorn_log_level": "use --log-level",
    "disable_frontend_multiprocessing": "engine and server share one process",
    "api_server_count": "engine and server share one process",
}
"""Options of vLLM's server that change nothing here, and why."""


def split_options(words: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Return what stands alone, and the arguments of `LLM` among options; underscores and dashes are the same.

    Values are read as JSON where they are JSON. An option without a value is true, and with `--no-` false.

    Args:
        words: of the command line, those that the command does not know itself.

    Raises:
        ConfigError: for an option that is given twice, or lacks its value.
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
            value = _value_of(text)
        elif name in _FLAGS:
            value = _value_of(rest.pop(0)) if rest and rest[0].lower() in ("true", "false") else True
        elif name.startswith("no_"):
            name, value = name[3:], False
        elif rest and not _is_option(rest[0]):
            value = _value_of(rest.pop(0))
        else:
            raise ConfigError(f"{option} needs a value")
        if name in found:
            raise ConfigError(f"{option} is given twice")
        if name in _NO_EFFECT:
            notice(f"serve:{name}", f"serve: {option!r} has no effect here: {_NO_EFFECT[name]}")
            continue
        found[name] = value
    return alone, found


def _is_option(word: str) -> bool:
    return (word.startswith("--") and len(word) > 2) or word in _SHORT


def _value_of(text: str) -> Any:
    if text in ("True", "False", "None"):
        return {"True": True, "False": False, "None": None}[text]
    try:
        return json.loads(text)
    except ValueError:
        return text
