"""A server in a separate process."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from load.client import Server

_LONGEST_START_S = 300.0


@contextmanager
def serving(words: Sequence[str], log: Path) -> Iterator[tuple[Server, psutil.Process]]:
    """Run `specdec serve` on a free port of this machine.

    Args:
        words: its arguments, without the port.
        log: file for its log.

    Raises:
        SystemExit: if it ends or does not listen within five minutes.
    """
    command = [str(Path(sys.executable).with_name("specdec")), "serve", *words, "--port", "0"]
    with log.open("w") as said, subprocess.Popen(command, stderr=said) as process:
        try:
            yield Server("127.0.0.1", _port(process, log)), psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(timeout=30)


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    """Wait until the server logs its address; return its port."""
    end = time.monotonic() + _LONGEST_START_S
    while time.monotonic() < end:
        if process.poll() is not None:
            raise SystemExit(f"the server ended: see {log}")
        found = re.search(r"at http://127.0.0.1:(\d+)", log.read_text())
        if found is not None:
            return int(found[1])
        time.sleep(0.1)
    raise SystemExit(f"the server does not listen after {_LONGEST_START_S:.0f} s: see {log}")
