"""The environment of a report: versions, hardware, command."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from specdec import ConfigError, registry
from specdec.config import ZOO, zoo_path
from specdec_cli.bench.workload import Workload
from specdec_runtime.loading import LoadedTarget


def environment(target: LoadedTarget, workload: Workload, num_rounds: int) -> dict[str, Any]:
    """Return the information needed to repeat a run, as plain data."""
    return {
        **surroundings(),
        "device": _device(target.device),
        "model": _model_name(target.path),
        "dtype": str(target.dtype).removeprefix("torch."),
        "max_tokens": workload.max_tokens,
        "temperature": workload.temperature,
        "seed": workload.seed,
        "deterministic": workload.is_deterministic,
        "prefix_caching": workload.is_prefix_cached,
        "rounds": num_rounds,
    }


def surroundings() -> dict[str, Any]:
    """Return the time, command, versions and processor of a run."""
    ours = sorted({info.distribution for info in registry.installed()} | {"specdec-core"})
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": [Path(sys.argv[0]).name, *without_key(sys.argv[1:])],
        "commit": _commit(),
        "versions": {name: version(name) for name in (*ours, "torch", "transformers")},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": _cpu(),
        "num_cpus": os.cpu_count(),
        "num_threads": torch.get_num_threads(),
    }


def without_key(words: list[str]) -> list[str]:
    """Return a command line without API keys, since reports are shared."""
    shown: list[str] = []
    for place, word in enumerate(words):
        if place and words[place - 1] == "--api-key":
            word = "..."
        elif word.startswith("--api-key="):
            word = "--api-key=..."
        shown.append(word)
    return shown


def _model_name(path: str | None) -> str | None:
    """Return `zoo` for the zoo's target, wherever it is installed; return every other name unchanged."""
    try:
        return ZOO if path == zoo_path("target") else path
    except ConfigError:
        return path


def _device(device: torch.device) -> str:
    if device.type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    return str(device)


def _cpu() -> str:
    """Return the name of the processor, from `/proc/cpuinfo` on Linux, else from `platform`."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _commit() -> str | None:
    """Return the running commit, marked as dirty if files were changed; None for an installed wheel."""
    folder = Path(__file__).parent
    command = ["git", "-C", str(folder), "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
    if any(part in ("site-packages", "dist-packages") for part in folder.parts):
        return None
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()
