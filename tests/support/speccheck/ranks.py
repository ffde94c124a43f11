"""Starts the ranks of a test as processes of their own, as `torchrun` does."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).parent.parent / "rank_script.py"


def start(
    folder: Path, jobs: Sequence[dict[str, Any]], size: int, **environment: str
) -> list[subprocess.Popen[str]]:
    """Start the ranks on the jobs; see `rank_script.py`."""
    folder.mkdir(exist_ok=True)
    (folder / "jobs.json").write_text(json.dumps(jobs))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(folder)],
            env=os.environ
            | {
                "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1", "SPECDEC_COLLECTIVE_TIMEOUT": "200",
            }
            | environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(size)
    ]  # fmt: skip


def wait(processes: Sequence[subprocess.Popen[str]], timeout: float) -> list[tuple[int, str]]:
    """Return exit status and output of every rank; all of them are ended afterwards."""
    try:
        outputs = [process.communicate(timeout=timeout)[0] for process in processes]
    finally:
        end(processes)
    return [(process.returncode, output) for process, output in zip(processes, outputs, strict=True)]


def end(processes: Sequence[subprocess.Popen[str]]) -> None:
    """End what still runs of these."""
    for process in processes:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def found(folder: Path, job: int, rank: int) -> Any:
    """Return what a rank wrote for a job."""
    return json.loads((folder / f"found_{job}_{rank}.json").read_text())
