"""Command-line options that are arguments of `LLM`."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any

from specdec import ConfigError, LLMOptions
from specdec.config import llm_arguments, notice

_SHORT = {
    "-tp": "tensor_parallel_size",
    "-q": "quantization",
    "-sc": "speculative_config",
}
_OF_LLM = {name: kind.__forward_arg__ for name, kind in LLMOptions.__annotations__.items()}
_FLAGS = frozenset(name for name, kind in _OF_LLM.items() if kind == "bool") | {
    "async_scheduling",
    "calculate_kv_scales",
    "multi_step_stream_outputs",
}
_FLAG_BEGINNINGS = ("enable_", "disable_", "use_")
"""Prefixes of options that need no value, in addition to `_FLAGS`."""
_TEXTS = frozenset(name for name, kind in _OF_LLM.items() if kind.startswith("str"))
"""Options whose values are text even if they look like numbers."""
_SEVERAL = "lora_modules"
"""The option that takes several values, each `NAME=PATH` or a JSON object."""
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
    "enable_server_load_tracking": "/load always tells how many requests run",
}
"""Options of vLLM's server that have no effect here, and why."""
_REFUSED: dict[str, dict[str, Any]] = {
    "tool_parser_plugin": {
        "reason": "--tool-call-parser takes ./file.py:Class, and plugins are found by themselves", "harmless": [""],
    },
    "reasoning_parser_plugin": {
        "reason": "--reasoning-parser takes ./file.py:Class, and plugins are found by themselves", "harmless": [""],
    },
    "api_server_count": {
        "reason": "engine and server share one process; --data-parallel-size runs several", "harmless": [1],
    },
}  # fmt: skip
"""Options of vLLM's server that are not supported, why, and the values that change nothing; as in `vllm.json`."""


def check_options(
    words: Sequence[str], from_file: Mapping[str, Any], path: str | None, own: Collection[str]
) -> None:
    """Raise for an option that is unknown or not supported, before anything else is looked at.

    Args:
        words: command-line words that the command itself does not know.
        from_file: arguments of `LLM` in the file of `--config`.
        path: of the file.
        own: names of the command's own options.

    Raises:
        ConfigError: naming the option as it was given.
    """
    typed: dict[str, str] = {}
    _, found = split_options(words, typed)
    compat = llm_arguments()
    taken = _taken()
    for name, value in with_file(found, from_file).items():
        given = typed.get(name, f"{path}: {name!r} = {value!r}")
        rule = _REFUSED.get(name) or (None if name in taken else compat.refused.get(name))
        if rule is None:
            if name not in taken:
                raise ConfigError(_unknown(name, typed.get(name), path, own))
        elif value is not None and value not in rule["harmless"]:
            raise ConfigError(f"{given} is not supported: {rule['reason']}")


@cache
def _taken() -> frozenset[str]:
    """Return the names of options, beside the server's own, that have an effect or are known to have none."""
    compat = llm_arguments()
    own = ("model", "speculative_config")
    return frozenset((*_OF_LLM, *_NO_EFFECT, *compat.notices, *compat.legacy, *own))


def _unknown(name: str, typed: str | None, path: str | None, own: Collection[str]) -> str:
    """Return the message for an unknown option, with the one that is meant, spelled as they are there."""
    nearest = get_close_matches(name, [*own, *_OF_LLM], n=1)
    if typed is None:
        hint = f"did you mean {nearest[0]!r}?" if nearest else "specdec serve --help lists the server's own"
        return f"{path}: unknown option {name!r}: {hint}"
    hint = (
        f"did you mean --{nearest[0].replace('_', '-')}?"
        if nearest
        else (f"options of the server itself: specdec serve --help; of LLM: {', '.join(_OF_LLM)}")
    )
    return f"serve: unknown option {typed.partition(' ')[0].partition('=')[0]}: {hint}"


def as_typed(message: str, words: Sequence[str]) -> str:
    """Return a message of `LLM` about an argument with the option as it was typed."""
    typed: dict[str, str] = {}
    _, found = split_options(words, typed)
    for name, value in found.items():
        for spelled in (f"{name!r} = {value!r}", f"{name}={value!r}", f"{name}={value}"):
            message = message.replace(f"LLM: {spelled}", typed[name])
    return message


def split_options(
    words: Sequence[str], typed: dict[str, str] | None = None
) -> tuple[list[str], dict[str, Any]]:
    """Return the positional words and the options that are arguments of `LLM`; underscores and dashes are equivalent.

    Values that are JSON are parsed as JSON. An option without a value is true, and with `--no-` false.

    Args:
        words: command-line words that the command itself does not know.
        typed: gets the words of each option.

    Raises:
        ConfigError: for an option that is given twice or lacks its value.
    """
    alone: list[str] = []
    found: dict[str, Any] = {}
    rest = list(words)
    while rest:
        before, word = rest.copy(), rest.pop(0)
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
            if name == _SEVERAL:
                value = [value]
                while rest and not _is_option(rest[0]) and ("=" in rest[0] or rest[0].startswith("{")):
                    value.append(_value_of(rest.pop(0)))
        elif name in _taken() | _REFUSED.keys() | llm_arguments().refused.keys():
            raise ConfigError(f"{option} needs a value")
        else:
            value = None  # `check_options` tells that it is unknown
        mapping, _, key = name.partition(".")
        place = found.setdefault(mapping, {}) if key else found
        if not isinstance(place, dict) or (key or name) in place:
            raise ConfigError(f"{option} is given twice")
        place[key or name] = value
        if typed is not None:
            typed[mapping] = " ".join(before[: len(before) - len(rest)])
    return alone, found


def without_foreign(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options without those of vLLM's server that have no effect here, which are logged once."""
    for name in _NO_EFFECT.keys() & options.keys():
        notice(f"serve:{name}", f"serve: {name!r} has no effect here: {_NO_EFFECT[name]}")
    return {name: value for name, value in options.items() if name not in _NO_EFFECT and name not in _REFUSED}


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
