"""`specdec serve --config FILE`: options from a YAML file, for what the command line does not give."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from specdec import ConfigError

_NOT_THE_COMMAND_S = ("model", "speculative_config")
"""Options that the command line may also give in ways which only `launch` reads."""


@dataclass(frozen=True)
class FileOptions:
    """Options of a file that are not the command's own: arguments of `LLM`, its model among them."""

    path: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)


def take_file(context: typer.Context, path: str | None) -> str | None:
    """Read the file that `--config` names: its values become defaults of the command's options, the rest `context.obj`.

    Args:
        context: of the command, before any other option is read.
        path: of the file; None without `--config`.

    Raises:
        ConfigError: for a file that cannot be read, and for a switch that is neither true nor false.
    """
    if path is None:
        return None
    given = read_options(path)
    if "config" in given:
        raise ConfigError(f"{path}: 'config' cannot be in the file itself: put all options into one")
    own = {parameter.name: parameter for parameter in context.command.params}
    arguments, defaults = {}, {}
    for name, value in given.items():
        if name in own and name not in _NOT_THE_COMMAND_S:
            defaults[name] = _default(path, own[name], value)
        else:
            arguments[name] = value
    context.default_map = defaults
    context.obj = FileOptions(path, arguments)
    return path


def read_options(path: str) -> dict[str, Any]:
    """Return the options of a YAML file by name, with underscores; those without a value are left out.

    Raises:
        ConfigError: for a file that cannot be read or holds no mapping, and for a name that is given twice.
    """
    import yaml

    try:
        loader = yaml.SafeLoader(Path(os.path.expanduser(path)).read_text(encoding="utf-8-sig"))
        root = loader.get_single_node()
        nodes = root.value if isinstance(root, yaml.MappingNode) else None if root else []
        pairs = nodes and [(str(key.value), loader.construct_object(item, deep=True)) for key, item in nodes]
    except OSError as error:
        raise ConfigError(f"--config: cannot read {path!r}: {error.strerror}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if pairs is None:
        raise ConfigError(f"{path} must hold options, one a line, such as 'port: 8000'")
    found: dict[str, Any] = {}
    for key, value in pairs:
        name = key.lstrip("-").replace("-", "_")
        if name in found:
            raise ConfigError(f"{path}: {name!r} is given twice")
        found[name] = value
    return {name: value for name, value in found.items() if value is not None}


def _default(path: str, option: Any, value: Any) -> Any:
    """Return a value in the form in which a command line would give it to an option, which checks it then."""
    if option.is_flag:
        if not isinstance(value, bool):
            raise ConfigError(f"{path}: {option.name} = {value!r} must be true or false")
        return value
    texts = [_text(item) for item in (value if option.multiple and isinstance(value, list) else [value])]
    return texts if option.multiple else texts[0]


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict | list) else str(value)
