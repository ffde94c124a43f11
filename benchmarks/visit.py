"""One visit of at most twelve minutes to a machine with a GPU: make gpu OUT=FOLDER.

    python benchmarks/visit.py --out FOLDER [--wheels FOLDER] [--parts plain tuning] [--quick]

For a machine that holds Python, torch, transformers and Triton but perhaps no package index and no checkout: `--missing` names
packages that it lacks, whose wheels `--wheels` takes. This repository is not installed: its folders go on PYTHONPATH.

Each part has a limit of its own and leaves FOLDER/PART.json, what it said is in FOLDER/PART.log. A part with a result of the
same commit is not run again, so that a visit that was cut off goes on with the same command. At the end every number and goal
is told, and FOLDER/visit.json has all of them. `--quick` rehearses with a tiny model, on the CPU too.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from common.uninstalled import ROOT, TOOLS, missing, prepare, sources
from device.goal import evaluate
from device.point import Point

_POLL_S = 0.1


@dataclass(frozen=True)
class Part:
    """One part of a visit.

    Args:
        seconds: its limit; that of the first part in a process counts starting it.
        command: arguments of Python; none for a part of `device_parts.py`, of which neighbours share a process.
    """

    seconds: float
    command: tuple[str, ...] = ()


PARTS = {
    "doctor": Part(20, ("-m", "specdec_cli", "doctor")),
    "plain": Part(150),
    "profiler": Part(30),
    "sampled": Part(30),
    "eagle3": Part(90),
    "methods": Part(90),
    "arrivals": Part(60),
    "tuning": Part(60),
    "tests": Part(
        720,
        (
            "-m",
            "pytest",
            "-q",
            "-m",
            "gpu",
            "-n",
            "6",
            "-W",
            "default",
            "kernels",
            "core",
            "runtime",
            "plugins",
        ),
    ),
}
"""Parts by name, in their order; the last one has what is left."""
VISIT_S = 720.0
WORKER = "benchmarks/device_parts.py"
_POINTS = ("plain", "sampled", "eagle3", "methods")


class Visit:
    """Runs parts and keeps what they leave.

    Args:
        out: folder of results.
        commit: what is measured.
        environment: environment variables of all parts.
        seconds: limit of the whole visit.
        is_quick: whether it is a rehearsal.
    """

    def __init__(
        self, out: Path, commit: str, environment: dict[str, str], seconds: float, *, is_quick: bool = False
    ) -> None:
        self._out, self._commit, self._environment, self._is_quick = out, commit, environment, is_quick
        self._end = time.monotonic() + seconds

    def is_done(self, name: str) -> bool:
        """Return whether a part has a result of this commit."""
        return self.result(name).get("commit") == self._commit

    def result(self, name: str, kind: str = "") -> dict[str, Any]:
        """Return the result of a part; empty if there is none."""
        with suppress(OSError, ValueError):
            found: dict[str, Any] = json.loads((self._out / f"{name}{kind}.json").read_text())
            return found
        return {}

    def run(self, parts: dict[str, Part]) -> int:
        """Run the parts that have no result, in order; returns how many failed."""
        for name in parts:
            if self.is_done(name):
                print(f"{name}: done before")
            else:
                (self._out / f"{name}.json").unlink(missing_ok=True)
                (self._out / f"{name}.partial.json").unlink(missing_ok=True)
        left = {name: part for name, part in parts.items() if not self.is_done(name)}
        failed = 0
        for _, group in groupby(left.items(), key=lambda item: item[1].command):
            waiting = dict(group)
            while waiting:
                failed += self._run_some(waiting)
        return failed

    def _run_some(self, waiting: dict[str, Part]) -> int:
        """Run a process for parts that share one, until they have ended or one fails; takes out of `waiting` what is over."""
        command = next(iter(waiting.values())).command
        if not command:
            command = (WORKER, *waiting, "--out", str(self._out), "--commit", self._commit)
            command += ("--quick",) if self._is_quick else ()
        log = self._out / f"{next(iter(waiting))}.log"
        if time.monotonic() >= self._end:
            print(f"{', '.join(waiting)}: no time is left")
            waiting.clear()
            return 1
        with log.open("w") as file:
            process = subprocess.Popen(
                [sys.executable, *command], cwd=ROOT, env=self._environment, stdout=file, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
            ended = "done"
            while waiting and ended.startswith("done"):
                name, part = next(iter(waiting.items()))
                ended = self._ended(process, name, part)
                print(f"{name}: {ended}, {log}", flush=True)
                del waiting[name]
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return int(not ended.startswith("done"))

    def _ended(self, process: subprocess.Popen[bytes], name: str, part: Part) -> str:
        """Wait for the end of a part; returns how it ended."""
        started = time.monotonic()
        until = min(started + part.seconds, self._end)
        while time.monotonic() < until:
            status = process.poll()
            if status == 0 and part.command:
                result = {"commit": self._commit, "seconds": time.monotonic() - started}
                (self._out / f"{name}.json").write_text(json.dumps(result))
            if self.is_done(name):
                return f"done after {time.monotonic() - started:.0f} s"
            if status is not None:
                return f"failed with exit status {status}"
            time.sleep(_POLL_S)
        return f"over its limit of {until - started:.0f} s"

    def report(self) -> dict[str, Any]:
        """Print every number and goal; returns what is kept of the visit, parts that were cut off included."""
        found = {name: self.result(name) or self.result(name, ".partial") for name in PARTS}
        points = [Point.from_dict(row) for name in _POINTS for row in found[name].get("rows", [])]
        environment: dict[str, Any] = next(
            (result["environment"] for result in found.values() if "environment" in result), {}
        )
        device = environment.get("device", {})
        for point in points:
            print(point.line)
        for row in found["profiler"].get("rows", []):
            print(
                f"profiler, batch {row['batch_size']}, context {row['context']}: {row['wall_ms']:.3f} ms, {row['calls']}"
            )
        for row in found["arrivals"].get("rows", []):
            print(f"arrivals: {row}")
        for row in found["tuning"].get("rows", [])[1:]:
            print(
                f"tuning, {row['problem']}: {row['heuristic_ms']} ms, best {row['best_ms']} ms with {row['best']}"
            )
        kernels = found["tuning"].get("rows", [{}])[:1]
        wrong = [
            row["op"]
            for each in kernels
            for row in each.get("kernels", {}).get("rows", [])
            if not row["is_equal"]
        ]
        print(f"kernels that compute something else than torch: {', '.join(wrong) or 'none seen'}")
        goals = evaluate(points, device.get("name", ""))
        for goal in goals:
            print(goal.line)
        is_rehearsal = self._is_quick or device.get("type") != "cuda"
        if is_rehearsal:
            print("A rehearsal: the goals are stated for an 8B model on a GPU and claim nothing here.")
        kept = {name: result.get("rows", result) for name, result in found.items() if result}
        return {
            "environment": environment,
            "is_rehearsal": is_rehearsal,
            **kept,
            "goals": [goal.as_dict() for goal in goals],
        }


def commit_of() -> str:
    """Return the commit, or outside a checkout a digest of the sources."""
    with suppress(OSError, subprocess.CalledProcessError):
        command = ["git", "rev-parse", "HEAD"]
        return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    digest = hashlib.sha256()
    for file in sorted(file for folder in (*sources(), ROOT / "benchmarks") for file in folder.rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:40]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts that are left; returns 1 if one failed or ran out of time, never because of a missed goal."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu", help="folder of logs and results")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--wheels", type=Path, help="folder of wheels of packages that are missing here")
    parser.add_argument("--seconds", type=float, default=VISIT_S, help="limit of the whole visit")
    parser.add_argument("--commit", default=None, help="default: git's, or a digest of the sources")
    parser.add_argument("--quick", action="store_true", help="rehearse with a tiny model")
    parser.add_argument("--missing", action="store_true", help="name the packages that are missing, and end")
    options = parser.parse_args(arguments)
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    environment = prepare(out, options.wheels)
    lacking, tools = missing(), missing(TOOLS)
    if options.missing or lacking:
        print(f"missing: {' '.join(lacking) or 'nothing'}; for the tests: {' '.join(tools) or 'nothing'}")
        return 1 if lacking else 0
    parts = {name: part for name, part in PARTS.items() if name in options.parts}
    if "tests" in parts and tools:
        print(f"tests: left out, as {', '.join(tools)} are missing")
        del parts["tests"]
    visit = Visit(out, options.commit or commit_of(), environment, options.seconds, is_quick=options.quick)
    failed = visit.run(parts)
    (out / "visit.json").write_text(json.dumps(visit.report(), indent=1) + "\n")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
