"""Loads each plugin in its own process; `python -m specdec.registry.probe GROUP NAME` is such a process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from specdec import registry
from specdec.errors import PluginError
from specdec.registry.plugin_info import Group, PluginInfo

MARK = "specdec-probe:"
"""Prefix of the line with the result, to tell it from other output of the plugin."""


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

    @classmethod
    def of(cls, info: PluginInfo, answer: Mapping[str, Any]) -> ProbeResult:
        """Return the result from an answer of `answer_of`, made in the process that loaded the plugin."""
        return cls(info, answer["error"], tuple(answer["capabilities"]), answer["is_lossless"])


def probe_all(plugins: Iterable[PluginInfo], *, timeout_s: float) -> Iterator[ProbeResult]:
    """Yield for each plugin, in order, whether it loads; each is loaded in its own process, two at a time."""
    with ThreadPoolExecutor(2) as pool:
        yield from pool.map(lambda info: probe(info, timeout_s=timeout_s), plugins)


def probe(info: PluginInfo, *, timeout_s: float) -> ProbeResult:
    """Return whether one plugin loads; it is loaded in its own process, so a crash or a hang affects nothing else."""
    command = [sys.executable, "-P", "-m", __name__, info.group, info.name]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        return ProbeResult(info, f"{info} did not load within {timeout_s:g} s")
    answers = [line.removeprefix(MARK) for line in process.stdout.splitlines() if line.startswith(MARK)]
    if not answers:
        last = process.stderr.strip().splitlines()[-1:] or ["no message"]
        return ProbeResult(info, f"{info} ended its process (exit code {process.returncode}): {last[0]}")
    return ProbeResult.of(info, json.loads(answers[-1]))


def answer_of(group: Group, name: str) -> dict[str, Any]:
    """Load a plugin in this process; return its error if it does not load, and its capabilities and `is_lossless`."""
    answer: dict[str, Any] = {"error": None, "capabilities": [], "is_lossless": None}
    try:
        answer |= _load(group, name)
    except PluginError as problem:
        answer["error"] = str(problem)
    return answer


def _load(group: Group, name: str) -> dict[str, Any]:
    """Load a plugin as its users do; return its capabilities and `is_lossless`."""
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
    }


def main() -> None:
    """Load the plugin named by the arguments and print the result as one line of JSON."""
    print(MARK + json.dumps(answer_of(Group(sys.argv[1]), sys.argv[2])))


if __name__ == "__main__":
    main()
