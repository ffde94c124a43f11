"""Error messages for plugins that are not installed."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from specdec.registry.catalogue import known_method, known_methods, packages_of_parts
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
    known = known_method(name) if group is Group.PROPOSERS else None
    package = packages_of_parts().get(name) if group is Group.PARTS else None
    if package is not None:
        return f"{name} is in a package that is not installed: pip install {package}"
    if known is not None:
        return f"method {name!r} is not installed: {_remedy(known.name)}. {listed}"
    guesses = {*names, *(known_methods() if group is Group.PROPOSERS else ())}
    nearest = get_close_matches(name, sorted(guesses), n=1, cutoff=0.6)
    if not nearest:
        return f"there is no {group.noun} {name!r}. {listed}"
    remedy = f" It is not installed: {_remedy(nearest[0])}." if nearest[0] not in names else ""
    return f"there is no {group.noun} {name!r}: did you mean {nearest[0]!r}?{remedy} {listed}"


def _remedy(name: str) -> str:
    known = known_methods()[name]
    if known.distribution is not None:
        return f"pip install {known.distribution}"
    if known.draft == "class":
        return "it needs the class to load, as 'model'"
    return "no package of specdec provides it"
