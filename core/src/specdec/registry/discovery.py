"""Finds plugins in the metadata of installed packages and imports nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from importlib.metadata import Distribution, EntryPoint, distributions
from operator import itemgetter

from specdec.registry.plugin_info import Group, PluginInfo

ALLOW_VARIABLE = "SPECDEC_PLUGINS"


def is_allowed(distribution: str, name: str) -> bool:
    """Return whether the environment variable `SPECDEC_PLUGINS` allows a plugin of a distribution to load.

    It is a comma-separated list of names of plugins (a method, a sampler, ...) or of distributions. If it is not set, all may
    load.
    """
    text = os.environ.get(ALLOW_VARIABLE)
    if text is None:
        return True
    words = [word.strip() for word in text.split(",")]
    return name in words or normalized(distribution) in map(normalized, words)


def entries_of(group: str, own: str) -> dict[str, EntryPoint]:
    """Return the entry points that may load of a group that a package beside core reads, sorted by name.

    Args:
        group: the entry-point group.
        own: that package's distribution, whose entry points may always load.
    """
    return {
        entry.name: entry
        for package, entry in sorted(entry_points_of({group})[0], key=itemgetter(1))
        if normalized(package.name) == own or is_allowed(package.name, entry.name)
    }


@dataclass(frozen=True)
class BrokenPackage:
    """An installed package whose metadata cannot be read; its plugins, if it has any, are left out."""

    path: str
    """The folder of its metadata."""
    reason: str

    def __str__(self) -> str:
        return f"the metadata in {self.path} cannot be read: {self.reason}: remove or reinstall that package"


def discover() -> tuple[tuple[PluginInfo, ...], tuple[BrokenPackage, ...]]:
    """Return every plugin of every installed distribution, sorted by group and name, and the packages left out.

    If two distributions claim the same name, both appear; a distribution found twice counts once.
    """
    entries, broken = entry_points_of({group.value for group in Group})
    infos = [
        PluginInfo(
            Group(entry.group),
            entry.name,
            distribution.name,
            distribution.version,
            entry.value,
            _summary(distribution),
        )
        for distribution, entry in entries
    ]
    return tuple(sorted(infos)), broken


def entry_points_of(
    groups: Collection[str],
) -> tuple[list[tuple[Distribution, EntryPoint]], tuple[BrokenPackage, ...]]:
    """Return the entry points of some groups whose names start with `specdec.`, and the packages left out."""
    found: dict[str, list[tuple[Distribution, EntryPoint]]] = {}
    broken = []
    for distribution in distributions():
        try:
            if "specdec." in (distribution.read_text("entry_points.txt") or ""):
                name, _ = _known(distribution, "Name"), _known(distribution, "Version")
                entries = [
                    (distribution, entry) for entry in distribution.entry_points if entry.group in groups
                ]
                found.setdefault(normalized(name), entries)
        except Exception as error:  # from files that anybody may have written
            path = getattr(distribution, "_path", None)  # no other attribute says where it is
            broken.append(BrokenPackage(str(path or distribution), f"{type(error).__name__}: {error}"))
    return [pair for pairs in found.values() for pair in pairs], tuple(broken)


def _summary(distribution: Distribution) -> str:
    return str(distribution.metadata["Summary"]) if "Summary" in distribution.metadata else ""


def _known(distribution: Distribution, key: str) -> str:
    """Return a field of the metadata that every package must have."""
    metadata = distribution.metadata
    if key not in metadata or not metadata[key]:
        raise ValueError(f"it says no {key}")
    return str(metadata[key])


def normalized(distribution: str) -> str:
    """Return the normalised spelling of a distribution's name."""
    return re.sub(r"[-_.]+", "-", distribution).lower()
