"""Reads `speculative_config` from any of its forms."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specdec.errors import ConfigError

FILE_SUFFIXES = (".json", ".yaml", ".yml")
_LONGEST_PATH = 255
EXAMPLE = '{"method": "...", "num_speculative_tokens": 5}'


def read_mapping(value: object) -> dict[str, Any]:
    """Return the mapping that is given as a mapping, as JSON or YAML text, or as the path of a JSON or YAML file.

    Raises:
        ConfigError: if it is none of these, or does not hold a mapping with string keys.
    """
    if isinstance(value, Mapping):
        return _with_string_keys(value, "speculative_config")
    if isinstance(value, Path):
        return _read_file(value)
    if isinstance(value, str):
        if _is_path(value):
            return _read_file(Path(value))
        return _parse(value, "speculative_config")
    raise ConfigError(
        f"speculative_config must be a mapping, JSON or YAML text, or a path; got {type(value).__name__}"
    )


def _is_path(text: str) -> bool:
    if "\n" in text or text.lstrip().startswith("{"):
        return False
    return text.endswith(FILE_SUFFIXES) or (
        len(text) <= _LONGEST_PATH and os.path.isfile(os.path.expanduser(text))
    )


def _read_file(path: Path) -> dict[str, Any]:
    try:
        text = Path(os.path.expanduser(path)).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"speculative_config: cannot read {str(path)!r}: {reason}") from None
    mapping = _parse(text, str(path))
    for key in ("speculative_config", "speculative-config"):
        if list(mapping) == [key]:
            return read_mapping(mapping[key])
    return mapping


def _parse(text: str, name: str) -> dict[str, Any]:
    if text.lstrip().startswith("{"):
        try:
            return _with_string_keys(json.loads(text), name)
        except json.JSONDecodeError as json_error:
            problem = f"{json_error.msg} (line {json_error.lineno}, column {json_error.colno})"
        except (ValueError, RecursionError) as error:  # a number of thousands of digits, lists thousands deep
            raise ConfigError(f"{name} cannot be read: {error}") from None
    else:
        problem = ""
    import yaml

    try:
        parsed = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = problem or " ".join(str(error).split())
        raise ConfigError(f"{name} is neither JSON nor YAML: {reason}; write for example {EXAMPLE}") from None
    if not isinstance(parsed, dict):
        got = repr(text.strip()[:60])
        if isinstance(parsed, str) and "\n" not in text.strip():
            raise ConfigError(f"{name}: {got} is neither a file nor a mapping such as {EXAMPLE}")
        raise ConfigError(f"{name} must hold a mapping such as {EXAMPLE}, got {got}")
    return _with_string_keys(parsed, name)


def _with_string_keys(mapping: Mapping[Any, Any], name: str) -> dict[str, Any]:
    for key in mapping:
        if not isinstance(key, str):
            raise ConfigError(f"{name}: keys must be strings, got {key!r}")
    return dict(mapping)
