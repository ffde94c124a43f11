"""Error messages for plugins that are not installed."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from specdec.registry.catalogue import (
    KnownMethod,
    known_commands,
    known_method,
    known_methods,
    official_packages,
)
from specdec.registry.discovery import BrokenPackage
from specdec.registry.plugin_info import Group, PluginInfo


def not_installed(
    group: Group, name: str, installed: Sequence[PluginInfo], broken: Sequence[BrokenPackage]
) -> str:
    """Return the message for a name that no installed package provides, as far as their metadata can be read."""
    return "; ".join([_without(group, name, installed), *map(str, broken)])


def _without(group: Group, name: str, installed: Sequence[PluginInfo]) -> str:
    names = sorted({info.name for info in installed})
    listed = f"Installed {group.noun}s: {', '.join(names) or 'none'}"
    remedies = _remedies(group)
    known = known_method(name) if group is Group.PROPOSERS else None
    own_name = name if known is None else known.name
    if own_name in remedies:
        return f"{group.noun} {name!r} is not installed: {remedies[own_name]}. {listed}"
    nearest = get_close_matches(name, sorted({*names, *remedies}), n=1, cutoff=0.6)
    if not nearest:
        return f"there is no {group.noun} {name!r}. {listed}"
    remedy = f" It is not installed: {remedies[nearest[0]]}." if nearest[0] not in names else ""
    return f"there is no {group.noun} {name!r}: did you mean {nearest[0]!r}?{remedy} {listed}"


def _remedies(group: Group) -> dict[str, str]:
    """Return what to do to have each plugin of a group that core knows without its package."""
    if group is Group.PROPOSERS:
        return {name: _remedy(known) for name, known in known_methods().items()}
    packages = official_packages(group)
    if group is Group.COMMANDS:
        packages = {name: package for name, (package, _) in known_commands().items()}
    return {name: f"pip install {package}" for name, package in packages.items()}


def _remedy(known: KnownMethod) -> str:
    if known.distribution is not None:
        return f"pip install {known.distribution}"
    if known.draft == "class":
        return "it needs the class to load, as 'model'"
    return "no package of specdec provides it"
