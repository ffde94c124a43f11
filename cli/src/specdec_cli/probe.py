"""Whether a plugin loads, found out in this process; `probe_many.py` has other processes do it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from specdec import PluginError, registry
from specdec.registry import Group, PluginInfo


@dataclass(frozen=True)
class ProbeResult:
    """Whether a plugin loads."""

    info: PluginInfo
    error: str | None
    """Why it does not load; None if it loads."""
    capabilities: tuple[str, ...] = ()
    """All capabilities a proposer may have, or those a sampler can use."""
    is_lossless: bool | None = None
    """The sampler's `is_lossless`; None for all other plugins."""
    implementation: str = ""
    """The proposer's `implementation`; empty for all other plugins."""

    @classmethod
    def of(cls, info: PluginInfo, answer: Mapping[str, Any]) -> ProbeResult:
        """Return the result from an answer of `answer_of`, made in the process that loaded the plugin."""
        return cls(
            info,
            answer["error"],
            tuple(answer["capabilities"]),
            answer["is_lossless"],
            answer["implementation"],
        )


def answer_of(group: Group, name: str) -> dict[str, Any]:
    """Load a plugin in this process; return its error if it does not load, and what its class says of itself."""
    answer: dict[str, Any] = {"error": None, "capabilities": [], "is_lossless": None, "implementation": ""}
    try:
        answer |= _load(group, name)
    except PluginError as problem:
        answer["error"] = str(problem)
    return answer


def _load(group: Group, name: str) -> dict[str, Any]:
    """Load a plugin as its users do; return what its class says of itself."""
    if group is Group.COMMANDS:
        import typer

        registry.add_command(name, typer.Typer())
        return {}
    if group is Group.OBSERVERS:
        registry.load(registry.find(group, name))
        return {}
    from specdec.interfaces import Part

    load: dict[Group, Callable[[str], type[Any]]] = {
        Group.PROPOSERS: registry.proposer,
        Group.SAMPLERS: registry.sampler,
        Group.SCORERS: registry.scorer,
        Group.BACKENDS: registry.backend,
        Group.PARTS: partial(registry.part, kind=Part),
    }
    plugin = load[group](name)
    return {
        "capabilities": sorted(capability.value for capability in getattr(plugin, "capabilities", ())),
        "is_lossless": getattr(plugin, "is_lossless", None),
        "implementation": getattr(plugin, "implementation", ""),
    }
