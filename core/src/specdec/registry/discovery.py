"""Finds plugins in the metadata of installed packages and imports nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions

from specdec.registry.plugin_info import Group, PluginInfo

CORE_DISTRIBUTION = "specdec-core"
ALLOW_VARIABLE = "SPECDEC_PLUGINS"


def discover() -> tuple[PluginInfo, ...]:
    """Return every plugin of every installed distribution, sorted by group and name.

    If two distributions claim the same name, both appear; a distribution found twice counts once.
    """
    groups = {group.value for group in Group}
    found: dict[str, list[PluginInfo]] = {}
    for distribution in distributions():
        text = distribution.read_text("entry_points.txt") or ""
        if "specdec." not in text:
            continue
        name = distribution.name
        if normalized(name) not in found:
            found[normalized(name)] = [
                _info(distribution, entry.group, entry.name, entry.value)
                for entry in distribution.entry_points
                if entry.group in groups
            ]
    return tuple(sorted(info for infos in found.values() for info in infos))


def _info(distribution: Distribution, group: str, name: str, value: str) -> PluginInfo:
    summary = str(distribution.metadata.json.get("summary", ""))
    return PluginInfo(Group(group), name, distribution.name, distribution.version, value, summary)


def normalized(distribution: str) -> str:
    """Return the normalised spelling of a distribution's name."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


@dataclass(frozen=True)
class AllowList:
    """Which plugins may load: `SPECDEC_PLUGINS`, a comma-separated list of names and distributions.

    A plugin may load if the list contains its own name (a method, sampler, scorer, command or observer) or the name
    of its distribution. Core's own plugins may always load. If the variable is not set, all plugins may load.
    """

    text: str | None

    def allows(self, info: PluginInfo) -> bool:
        """Return whether the plugin may load."""
        if self.text is None or normalized(info.distribution) == CORE_DISTRIBUTION:
            return True
        entries = [entry.strip() for entry in self.text.split(",")]
        return info.name in entries or normalized(info.distribution) in map(normalized, entries)
