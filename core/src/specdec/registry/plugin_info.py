"""Metadata of one plugin, as listed by installed packages."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Group(StrEnum):
    """The seven kinds of plugin, each an entry-point group."""

    PROPOSERS = "specdec.proposers"
    SAMPLERS = "specdec.samplers"
    SCORERS = "specdec.scorers"
    BACKENDS = "specdec.backends"
    PARTS = "specdec.parts"
    COMMANDS = "specdec.commands"
    OBSERVERS = "specdec.observers"

    @property
    def noun(self) -> str:
        """The noun for one plugin of the group in messages."""
        return {
            Group.PROPOSERS: "method",
            Group.SAMPLERS: "sampler",
            Group.SCORERS: "scorer",
            Group.BACKENDS: "backend",
            Group.PARTS: "part",
            Group.COMMANDS: "command",
            Group.OBSERVERS: "observer",
        }[self]


@dataclass(frozen=True, order=True)
class PluginInfo:
    """One entry point of one distribution; its module is not imported."""

    group: Group
    name: str
    """The entry point's name: the method, sampler, scorer or command that users type."""
    distribution: str
    version: str
    module: str
    """The module with the hook implementations."""
    summary: str = ""
    """The distribution's one-line description."""

    def __str__(self) -> str:
        return f"{self.group.noun} {self.name!r} of {self.distribution} {self.version}"
