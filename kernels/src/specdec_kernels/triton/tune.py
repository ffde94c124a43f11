"""`python -m specdec_kernels.triton.tune <operation>`: measures launch parameters on this machine's GPU, once and offline.

`specdec_kernels.triton.tuned` reads the resulting file. Once committed, everyone with the same kind of device uses it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import torch

from specdec_kernels.triton.dispatch import Backend, use_backend
from specdec_kernels.triton.tuned import FOLDER, numbers, slug
from specdec_kernels.triton.workloads import WORKLOADS, Call

Timer = Callable[[Callable[[], object]], float]
"""Returns the microseconds that one call takes on the device."""

ROUNDS = 5
TOLERANCE = 2.0**-6
"""Maximum difference between the results of two configurations: the last bits of bfloat16 numbers around 1."""


def tune(
    op: str, timer: Timer, device: torch.device, refused: tuple[type[Exception], ...] = ()
) -> list[dict[str, Any]]:
    """Measure an operation's candidates for each of its problems.

    Candidates are interleaved, so changes of the clock frequency affect all of them. A candidate is left out if its results
    differ from those of the heuristic's configuration or if its launch fails.

    Args:
        op: the operation's folder.
        timer: measures a call.
        device: where the inputs are created.
        refused: exceptions of a launch that exceeds the device's resources.

    Returns:
        For each problem its `sizes`, the best `config`, and the median microseconds of it and of the heuristic's.
    """
    module = import_module(f"specdec_kernels.triton.{op}.config")
    entries = []
    for sizes in WORKLOADS[op].sizes:
        first = module.heuristic(*sizes)
        configs = [first, *(config for config in module.candidates(*sizes) if config != first)]
        expected = _made(op, sizes, device)(first)
        right = [first]
        for config in configs[1:]:
            if _is_right(_made(op, sizes, device), config, expected, refused):
                right.append(config)
        call = _made(op, sizes, device)
        times: dict[Any, list[float]] = {config: [] for config in right}
        for _ in range(ROUNDS):
            for config in right:
                times[config].append(timer(partial(call, config)))
        best = min(right, key=lambda config: median(times[config]))
        entries.append(
            {
                "sizes": numbers(sizes),
                "config": asdict(best),
                "microseconds": round(median(times[best]), 2),
                "heuristic_microseconds": round(median(times[first]), 2),
                "left_out": len(configs) - len(right),
            }
        )
    return entries


def write(op: str, device_name: str, entries: list[dict[str, Any]], folder: Path = FOLDER) -> Path:
    """Write the result of `tune` with its provenance and return the file."""
    file = folder / op / f"{slug(device_name)}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    provenance = {"device": device_name, "torch": torch.__version__, "triton": version("triton")}
    provenance["command"] = f"python -m specdec_kernels.triton.tune {op}"
    file.write_text(json.dumps({**provenance, "entries": entries}, indent=1) + "\n", encoding="utf-8")
    return file


def main(arguments: Sequence[str] | None = None) -> int:
    """Tune the operation given on the command line; return 2 if there is no device to tune it on."""
    parser = argparse.ArgumentParser("python -m specdec_kernels.triton.tune", description=__doc__)
    parser.add_argument(
        "op", choices=sorted(WORKLOADS), metavar="operation", help=", ".join(sorted(WORKLOADS))
    )
    op: str = parser.parse_args(arguments).op
    if not torch.cuda.is_available():
        print("Launch parameters are measured on a CUDA device, and torch finds none here.", file=sys.stderr)
        return 2
    from triton.runtime.errors import OutOfResources
    from triton.testing import do_bench

    device = torch.device("cuda", torch.cuda.current_device())
    with use_backend(Backend.TRITON):
        entries = tune(
            op, lambda call: 1000 * do_bench(call, return_mode="median"), device, (OutOfResources,)
        )
    for entry in entries:
        before, after = entry["heuristic_microseconds"], entry["microseconds"]
        print(f"{entry['sizes']}: {before} -> {after} microseconds, {entry['config']}")
    print(write(op, torch.cuda.get_device_name(device), entries))
    return 0


def _made(op: str, sizes: tuple[Any, ...], device: torch.device) -> Call:
    torch.manual_seed(0)
    return WORKLOADS[op].make(device, *sizes)


def _is_right(
    call: Call, config: Any, expected: tuple[torch.Tensor, ...], refused: tuple[type[Exception], ...]
) -> bool:
    try:
        found = call(config)
    except refused:
        return False
    return all(
        torch.allclose(a, b, TOLERANCE, TOLERANCE) if a.is_floating_point() else torch.equal(a, b)
        for a, b in zip(found, expected, strict=True)
    )


if __name__ == "__main__":
    sys.exit(main())
