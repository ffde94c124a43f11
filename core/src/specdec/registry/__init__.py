"""Access to the plugins of this process: `proposer("name")`, `sampler("name")`, `installed()` and so on.

Listing reads metadata only; a plugin's module is imported on first use. There is one `Registry` per
process.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from specdec.registry.backend_list import why_none
from specdec.registry.catalogue import known_commands, known_method, known_methods
from specdec.registry.class_path import is_class_path, load_class
from specdec.registry.discovery import ALLOW_VARIABLE, BrokenPackage, entries_of
from specdec.registry.plugin_info import Group, PluginInfo
from specdec.registry.registry import Registry

if TYPE_CHECKING:
    import pluggy

__all__ = [
    "ALLOW_VARIABLE",
    "BrokenPackage",
    "Group",
    "PluginInfo",
    "add_command",
    "backend",
    "backends",
    "broken",
    "commands",
    "entries_of",
    "find",
    "installed",
    "is_class_path",
    "known_commands",
    "known_method",
    "known_methods",
    "load",
    "load_class",
    "may_load",
    "observers",
    "part",
    "proposer",
    "reset",
    "sampler",
    "scorer",
    "why_no_backend",
]

_registry = Registry()

proposer = _registry.proposer
sampler = _registry.sampler
scorer = _registry.scorer
backend = _registry.backend
backends = _registry.backends
part = _registry.part
why_no_backend = partial(why_none, _registry)
commands = _registry.commands
add_command = _registry.add_command
installed = _registry.installed
broken = _registry.broken
find = _registry.find
load = _registry.load
may_load = _registry.may_load
reset = _registry.reset


def observers() -> pluggy.HookRelay | None:
    """Load the observers and return the hooks to call, or None if there are no observers.

    A broken observer, or a package that may hold one, is logged and left out; the others are not affected.
    """
    relay, errors = _registry.observers()
    for error in (*errors, *broken()):
        logging.getLogger("specdec").warning("%s; it is left out", error)
    return relay
