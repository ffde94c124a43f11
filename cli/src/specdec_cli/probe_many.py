"""Loads plugins in other processes, so that a crash or a hang affects nothing else."""

from __future__ import annotations

import gc
import json
import os
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import monotonic
from typing import Any

from specdec.registry import Group, PluginInfo
from specdec_cli.probe import ProbeResult, answer_of

_START_TIMEOUT_S = 120.0
"""Timeout for the process to start, on a busy machine."""
_MACHINE = "machine"
"""Stands behind the plugins where the process is to say what `machine.py` finds."""


def probe_many(
    plugins: Sequence[PluginInfo], *, timeout_s: float, machine: dict[str, Any] | None = None
) -> Iterator[ProbeResult]:
    """Yield for each plugin, in order, whether it loads, as soon as this is known; one process loads them one after another.

    Modules stay imported for the next plugin, which saves seconds for each. A new process starts after a plugin that exits
    or times out.

    Args:
        plugins: the plugins.
        timeout_s: timeout for the import of one plugin.
        machine: is filled with what `machine.py` says in the process of the last plugin.
    """
    num_done = 0
    while num_done < len(plugins) or machine == {}:
        for result in _probe_until_one_fails(plugins[num_done:], timeout_s, machine):
            num_done += 1
            yield result


def probe_each(plugins: Sequence[PluginInfo], *, timeout_s: float) -> Iterator[ProbeResult]:
    """Yield for each plugin, in order, whether it loads; each is loaded in a process of its own, two at a time."""
    with ThreadPoolExecutor(2) as pool:
        yield from pool.map(partial(_probe, timeout_s=timeout_s), plugins)


def _probe(info: PluginInfo, timeout_s: float) -> ProbeResult:
    (result,) = probe_many([info], timeout_s=timeout_s)
    return result


def _probe_until_one_fails(
    plugins: Sequence[PluginInfo], timeout_s: float, machine: dict[str, Any] | None
) -> Iterator[ProbeResult]:
    """Yield results up to and including the first plugin that exits or times out; where none does, fill `machine`."""
    reading, writing = os.pipe()
    command = [sys.executable, "-P", "-m", __name__, str(writing)]
    command += [f"{info.group}:{info.name}" for info in plugins]
    command += [] if machine is None else [_MACHINE]
    with tempfile.TemporaryFile("w+", errors="replace") as said, open(reading, "rb", buffering=0) as answers:
        process = subprocess.Popen(command, pass_fds=[writing], stdout=subprocess.DEVNULL, stderr=said)
        os.close(writing)
        try:
            lines = _Lines(answers.fileno())
            if lines.next(_START_TIMEOUT_S) is None and plugins:
                yield ProbeResult(
                    plugins[0], f"{plugins[0]}: its process did not start within {_START_TIMEOUT_S:g} s"
                )
                return
            for info in plugins:
                line = lines.next(timeout_s)
                if line is None:
                    yield ProbeResult(info, f"{info} did not load within {timeout_s:g} s")
                    return
                if not line:
                    process.wait()
                    said.seek(0)
                    last = said.read().strip().splitlines()[-1:] or ["no message"]
                    code = process.returncode
                    yield ProbeResult(info, f"{info} ended its process (exit code {code}): {last[0]}")
                    return
                yield ProbeResult.of(info, json.loads(line))
            if machine is not None:
                line = lines.next(timeout_s)
                failed = {"devices": {"none": "the process that imports torch and the backends failed"}}
                machine |= json.loads(line) if line else failed
        finally:
            process.kill()
            process.wait()


class _Lines:
    """Reads lines from a pipe with a timeout per line."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._held = b""
        self._selector = selectors.DefaultSelector()
        self._selector.register(descriptor, selectors.EVENT_READ)

    def next(self, timeout_s: float) -> bytes | None:
        """Return the next line, an empty one at the end of the stream, or None after the timeout."""
        end = monotonic() + timeout_s
        while b"\n" not in self._held:
            if not self._selector.select(max(0.0, end - monotonic())):
                return None
            read = os.read(self._descriptor, 65536)
            if not read:
                return b""
            self._held += read
        line, _, self._held = self._held.partition(b"\n")
        return line


def main() -> None:
    """Load what the arguments name; write one line of JSON for each to a file descriptor."""
    gc.disable()  # it finds nothing, and takes a fifth of the time of imports
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)  # a child process of a plugin must not keep the pipe open
    os.write(descriptor, b"ready\n")
    for argument in sys.argv[2:]:
        if argument == _MACHINE:
            from specdec_cli.machine import machine

            os.write(descriptor, json.dumps(machine()).encode() + b"\n")
            return
        group, _, name = argument.partition(":")
        answer: dict[str, Any] = answer_of(Group(group), name)
        os.write(descriptor, json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main()
