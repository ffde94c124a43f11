"""The names of a new plugin, all derived from one."""

from __future__ import annotations

import keyword
import re
import sys
from dataclasses import dataclass
from importlib.util import find_spec

from specdec import ConfigError, registry
from specdec.registry import Group, known_method

_NAME = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")


@dataclass(frozen=True)
class PluginNames:
    """The names of a plugin, with `my-idea` as example."""

    folder: str
    """`my-idea`."""
    module: str
    """`my_idea`: the module, and the name that users type."""
    cls: str
    """`MyIdea`."""
    distribution: str
    """`specdec-my-idea`."""


def plugin_names(name: str, group: Group) -> PluginNames:
    """Return the names derived from one.

    Args:
        name: lower-case words with `-` or `_` between them.
        group: the kind of plugin.

    Raises:
        ConfigError: for an invalid name, or one that is already taken.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(f"name {name!r}: use lower-case words of letters and digits, as in my-idea")
    module = name.replace("-", "_")
    if keyword.iskeyword(module):
        raise ConfigError(f"name {name!r} is a Python keyword: choose another one")
    if group is Group.PROPOSERS and (known := known_method(module) or known_method(name)) is not None:
        raise ConfigError(
            f"name {name!r} is that of a published method ({known.summary}): choose another one"
        )
    taken = [info for info in registry.installed(group) if info.name == module]
    if taken:
        raise ConfigError(f"name {name!r} is taken: {taken[0]} is installed; choose another one")
    if module in sys.stdlib_module_names or find_spec(module) is not None:
        raise ConfigError(f"name {name!r}: there is a module {module!r} already, which the plugin would hide")
    words = module.split("_")
    return PluginNames(
        name, module, "".join(word.capitalize() for word in words), f"specdec-{'-'.join(words)}"
    )
