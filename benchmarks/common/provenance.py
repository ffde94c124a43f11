"""Provenance of a result: code, machine, command."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import psutil

from common.process import BENCHMARKS

_ROOT = BENCHMARKS.parent
_TELLING_FLAGS = ("fma", "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "asimd", "bf16", "sve")


def provenance() -> dict[str, object]:
    """Return commit, machine, command and date; paths outside the repository are reduced to their last part."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": shlex.join(["python", *(_shorten(word) for word in sys.argv)]),
        "commit": _git("rev-parse", "HEAD"),
        "is_modified": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "cpu": _cpu_line("model name") or platform.processor(),
        "cpu_family": _cpu_line("cpu family"),
        "cpu_flags": _flags(),
        "num_cores": _num_cores(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "load_average": load_average(),
    }


def load_average() -> list[float]:
    """Return the load of the machine over 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def _num_cores() -> int:
    """Cores this process may use."""
    return len(psutil.Process().cpu_affinity() or []) if sys.platform == "linux" else os.cpu_count() or 1


def _shorten(word: str) -> str:
    if os.sep not in word or word.startswith("{"):
        return word
    path = Path(word).absolute()
    return str(path.relative_to(_ROOT)) if path.is_relative_to(_ROOT) else path.name


def _git(*arguments: str) -> str:
    """Output of a git command; empty outside a checkout."""
    done = subprocess.run(["git", *arguments], cwd=_ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _cpu_line(key: str) -> str:
    file = Path("/proc/cpuinfo")
    if not file.exists():
        return ""
    for line in file.read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""


def _flags() -> list[str]:
    present = set((_cpu_line("flags") or _cpu_line("Features")).split())
    return [flag for flag in _TELLING_FLAGS if flag in present]
