"""Reads a file of past outputs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from specdec import ConfigError
from specdec_cli.bench.lines import json_lines
from specdec_plugin_suffix.request import PROMPT_TOKENS

KEYS = ("token_ids", "text", "response")
"""Keys that may hold an output, in order of precedence. `specdec generate --json` prints the first two."""
ANSWER = {"ids", "n"}
"""Keys of a line written by `specdec train`: token ids of prompt and answer together, and the length of the prompt."""


def read_outputs(path: Path) -> Iterator[tuple[str, str | list[int]]]:
    """Yield the location of each line and its output, as text or token ids; blank lines are skipped.

    Other keys, including prompts, are ignored: only outputs are used. Outputs of `specdec train` are preceded by the end of
    their prompt.

    Raises:
        ConfigError: naming the file and the number of the invalid line.
    """
    for place, entry in json_lines(path):
        yield place, _output(entry, place)


def _output(entry: Any, origin: str) -> str | list[int]:
    if isinstance(entry, dict) and entry.keys() >= ANSWER:
        entry = {"token_ids": _answer(entry["ids"], entry["n"], origin)}
    key = next((key for key in KEYS if key in entry), None) if isinstance(entry, dict) else None
    if key is None:
        raise ConfigError(f"{origin}: needs an object with one of the keys {', '.join(map(repr, KEYS))}")
    value = entry[key]
    if key != "token_ids":
        if not isinstance(value, str):
            raise ConfigError(f"{origin}: {key!r} must be text, got {value!r}")
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise ConfigError(f"{origin}: {key!r} has a lone surrogate, which is no text")
        return value
    if not isinstance(value, list) or not all(type(token) is int and token >= 0 for token in value):
        raise ConfigError(f"{origin}: 'token_ids' must be a list of token ids, integers from 0 on")
    return value


def _answer(ids: Any, num_prompt: Any, origin: str) -> Any:
    if not isinstance(ids, list) or type(num_prompt) is not int or not 0 <= num_prompt <= len(ids):
        raise ConfigError(
            f"{origin}: 'ids' must be a list of token ids, and 'n' how many of them are the prompt's"
        )
    return ids[max(0, num_prompt - PROMPT_TOKENS) :] if len(ids) > num_prompt else []
