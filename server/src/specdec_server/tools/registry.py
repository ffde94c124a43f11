"""Finds parsers by name, from installed packages or by class path."""

from __future__ import annotations

import logging
import os
from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoint
from typing import TypeVar

from specdec import ConfigError
from specdec.registry import ALLOW_VARIABLE, entries_of, is_class_path, load_class
from specdec_server.tools.parser import OutputParser, ToolParser

logger = logging.getLogger("specdec")

TOOL_PARSERS = "specdec.tool_parsers"
REASONING_PARSERS = "specdec.reasoning_parsers"
Parser = TypeVar("Parser", bound=OutputParser)
_BASE: type[ToolParser] = ToolParser
_OWN = "specdec-server"


def parser_class(group: str, name: str, base: type[Parser], option: str) -> type[Parser]:
    """Return the class of a parser.

    Args:
        group: entry-point group; each entry point is `module:Class`.
        name: of the entry point, or `./file.py:Class` or `package.module.Class`.
        base: required base class.
        option: command-line option that gave the name, for messages.

    Raises:
        ConfigError: if it does not exist or is not a subclass of `base`.
    """
    if is_class_path(name):
        return _checked(load_class(name), name, base, option)
    found = entries_of(group, _OWN)
    if name not in found:
        nearest = get_close_matches(name, found, n=1)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        raise ConfigError(f"{option} {name!r} is not installed: {hint}installed: {', '.join(sorted(found))}")
    return _checked(_loaded(found[name], option), name, base, option)


def inferred(template: str) -> type[ToolParser] | None:
    """Return the parser for the format of a chat template; None if it is unknown."""
    best, score = None, 0
    for parser in _tool_parsers(os.environ.get(ALLOW_VARIABLE)):
        fit = parser.fits(template) if parser.template_marks else 0
        if fit > score:
            best, score = parser, fit
    return best


@cache
def _tool_parsers(allowed: str | None) -> tuple[type[ToolParser], ...]:
    """Return the parsers that may be inferred; one that cannot be loaded is left out, with a warning."""
    parsers = []
    for entry in entries_of(TOOL_PARSERS, _OWN).values():
        try:
            parsers.append(_checked(_loaded(entry, TOOL_PARSERS), entry.name, _BASE, TOOL_PARSERS))
        except ConfigError as error:
            logger.warning("%s; it is left out", error)
    return tuple(parsers)


def _loaded(entry: EntryPoint, option: str) -> object:
    try:
        return entry.load()
    except (Exception, SystemExit) as error:  # importing a plugin may raise anything
        raise ConfigError(
            f"{option} {entry.name!r} cannot be loaded: {type(error).__name__}: {error}"
        ) from error


def _checked(given: object, name: str, base: type[Parser], option: str) -> type[Parser]:
    if not isinstance(given, type) or not issubclass(given, base):
        raise ConfigError(
            f"{option} {name!r}: {given!r} is not a subclass of {base.__module__}.{base.__qualname__}"
        )
    return given
