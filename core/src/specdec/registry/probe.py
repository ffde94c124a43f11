"""Loads plugins, each in a process of its own: `python -m specdec.registry.probe GROUP NAME` is one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from specdec import registry
from specdec.errors import PluginError
from specdec.registry.plugin_info import Group, PluginInfo

MARK = "specdec-probe:"
"""Begins the line with the result, whatever else a plugin prints."""


@dataclass(frozen=True)
class ProbeResult:
    """Whether a plugin loads."""

    info: PluginInfo
    error: str | None
    """Why it does not; None if it does."""
    capabilities: tuple[str, ...] = ()
    """The most a proposer can do, or what a sampler can use."""
    is_lossless: bool | None = None
    """What a sampler says of itself; None for everything else."""

    @classmethod
    def of(cls, info: PluginInfo, answer: Mapping[str, Any]) -> ProbeResult:
        """Return what the process that loaded it says, as `answer_of` made it."""
        return cls(info, answer["error"], tuple(answer["capabilities"]), answer["is_lossless"])


def probe_all(
    plugins: Iterable[PluginInfo], *, timeout_s: float, max_processes: int = 2
) -> Iterator[ProbeResult]:
    """Yield for each plugin, in order, whether it loads; each is tried in a process of its own."""
    with ThreadPoolExecutor(max_processes) as pool:
        yield from pool.map(lambda info: probe(info, timeout_s=timeout_s), plugins)


def probe(info: PluginInfo, *, timeout_s: float) -> ProbeResult:
    """Return whether one plugin loads, tried in a process of its own: a crash or a hang is only its own."""
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
    """Load a plugin in this process; return why it does not load, if so, and what it says of itself."""
    answer: dict[str, Any] = {"error": None, "capabilities": [], "is_lossless": None}
    try:
        answer |= _load(group, name)
    except PluginError as problem:
        answer["error"] = str(problem)
    return answer


def _load(group: Group, name: str) -> dict[str, Any]:
    """Load a plugin as its users would; return what it says of itself."""
    if group is Group.COMMANDS:
        import typer

        registry.add_command(name, typer.Typer())
        return {}
    if group is Group.OBSERVERS:
        registry.load(registry.find(group, name))
        return {}
    load = {
        Group.PROPOSERS: registry.proposer,
        Group.SAMPLERS: registry.sampler,
        Group.SCORERS: registry.scorer,
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
