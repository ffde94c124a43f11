"""Access to the plugins of this process: `proposer("name")`, `sampler("name")`, `installed()` and so on.

Listing reads metadata only; a plugin's module is imported on first use. There is one `Registry` per
process.
"""

from __future__ import annotations

import logging
from types import ModuleType
from typing import TYPE_CHECKING

from specdec.faces import lazily
from specdec.registry.discovery import BrokenPackage
from specdec.registry.plugin_info import Group, PluginInfo
from specdec.registry.registry import Registry

if TYPE_CHECKING:
    import pluggy
    import typer

    from specdec.interfaces import Backend, Proposer, Sampler, Scorer
    from specdec.registry.catalogue import known_method as known_method
    from specdec.registry.catalogue import known_methods as known_methods
    from specdec.registry.class_path import is_class_path as is_class_path
    from specdec.registry.class_path import load_class as load_class
    from specdec.registry.discovery import ALLOW_VARIABLE as ALLOW_VARIABLE
    from specdec.registry.discovery import entry_points_of as entry_points_of
    from specdec.registry.discovery import normalized as normalized

__all__ = [
    "ALLOW_VARIABLE",
    "BrokenPackage",
    "Group",
    "PluginInfo",
    "Registry",
    "add_command",
    "backend",
    "backends",
    "broken",
    "commands",
    "entry_points_of",
    "find",
    "installed",
    "is_class_path",
    "known_method",
    "known_methods",
    "load",
    "load_class",
    "may_load",
    "normalized",
    "observers",
    "proposer",
    "reset",
    "sampler",
    "scorer",
]

__getattr__ = lazily(
    __name__,
    {
        "ALLOW_VARIABLE": "discovery",
        "entry_points_of": "discovery",
        "is_class_path": "class_path",
        "known_method": "catalogue",
        "known_methods": "catalogue",
        "load_class": "class_path",
        "normalized": "discovery",
    },
)


_registry = Registry()


def proposer(name: str) -> type[Proposer]:
    """Return the class behind a method name, a `./file.py:Class` or a `package.module.Class`.

    Raises:
        PluginError: if there is none, or if it cannot be loaded; names distribution, version and cause.
    """
    return _registry.proposer(name)


def sampler(name: str) -> type[Sampler]:
    """Return the class behind a `rejection_sample_method`; see `proposer`."""
    return _registry.sampler(name)


def scorer(name: str) -> type[Scorer]:
    """Return the class behind a scorer's name; see `proposer`."""
    return _registry.scorer(name)


def backend(name: str) -> type[Backend]:
    """Return the class behind a backend's name; see `proposer`."""
    return _registry.backend(name)


def backends() -> tuple[Backend, ...]:
    """Return the installed backends, or those that `SPECDEC_BACKENDS` names, in the order they are asked.

    Raises:
        PluginError: if the environment names a backend that is not installed or cannot be loaded.
    """
    return _registry.backends()


def observers() -> pluggy.HookRelay | None:
    """Load the observers and return the hooks to call, or None if there are no observers.

    A broken observer, or a package that may hold one, is logged and left out; the others are not affected.
    """
    relay, errors = _registry.observers()
    for error in (*errors, *_registry.broken()):
        logging.getLogger("specdec").warning("%s; it is left out", error)
    return relay


def commands() -> list[PluginInfo]:
    """Return the sub-commands that may load; reads metadata only."""
    return _registry.commands()


def add_command(name: str, app: typer.Typer) -> None:
    """Import the module behind a sub-command and let it add itself to `app`.

    Raises:
        PluginError: if there is none, or if it cannot be loaded.
    """
    _registry.add_command(name, app)


def installed(group: Group | str | None = None) -> list[PluginInfo]:
    """Return the plugins listed in the metadata of installed packages, of one group or of all; imports nothing."""
    return _registry.installed(group)


def broken() -> tuple[BrokenPackage, ...]:
    """Return the installed packages whose metadata cannot be read; plugins that they have are left out."""
    return _registry.broken()


def find(group: Group, name: str) -> PluginInfo:
    """Return the one entry point of that name that may load, without importing it.

    Raises:
        PluginError: if there is none, if two distributions claim it, or if `SPECDEC_PLUGINS` excludes it.
    """
    return _registry.find(group, name)


def load(info: PluginInfo) -> ModuleType:
    """Import the module of one entry point and register its hooks.

    Raises:
        PluginError: naming distribution, version and cause.
    """
    return _registry.load(info)


def may_load(info: PluginInfo) -> bool:
    """Return whether the environment variable `SPECDEC_PLUGINS` allows a plugin to load.

    It is a comma-separated list of names of plugins (a method, a sampler, ...) or of distributions. Core's
    own plugins may always load. If the variable is not set, all plugins may load.
    """
    return _registry.may_load(info)


def reset() -> None:
    """Forget everything found and loaded; for tests and for processes that install packages while they run."""
    global _registry
    _registry = Registry()
