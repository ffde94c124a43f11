"""The device benchmark: engine steps, comparison with assisted generation, every kernel; checked against goals.

    python benchmarks/device_bench.py gpu     # an 8B Llama with random weights, on one GPU: make bench-gpu
    python benchmarks/device_bench.py cpu     # the same on the zoo, as a rehearsal: make bench-cpu

The command exits with 1 if engines or kernels compute different results, never because of a missed goal.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from common import results as comparisons
from common.provenance import load_average, provenance
from common.results import RESULTS, write
from device import tables
from device.assisted_part import assisted_ratio, run_assisted
from device.bandwidth import bandwidth_of
from device.engine_part import STRICT, SYNTHETIC, run_engine
from device.goal import evaluate
from device.kernel_part import run_kernels
from device.models import Models
from device.plan import PLANS, Plan
from device.plot import plot

PARTS = ("engine", "assisted", "kernels")
_DISTRIBUTIONS = ("specdec-core", "specdec-kernels", "torch", "transformers", "triton", "numba")


def run(plan: Plan, parts: Sequence[str], verification: str) -> tuple[dict[str, Any], bool]:
    """Run the parts and print their tables.

    Args:
        plan: what to run.
        parts: which of `PARTS`.
        verification: of part 1, see `run_engine`.

    Returns:
        The result, and whether all compared outputs were equal.
    """
    began, start = environment(plan), perf_counter()
    device = torch.device(plan.device)
    bandwidth = bandwidth_of(device)
    found: dict[str, Any] = {}
    points, ratio, is_equal = [], None, True
    with tempfile.TemporaryDirectory() as name:
        models = Models(plan, Path(name))
        if "engine" in parts:
            engine = run_engine(models, plan.engine, verification, bandwidth, Path(name))
            print(tables.engine_table(engine))
            points, found["engine"] = engine.points, engine.as_dict()
        if "assisted" in parts:
            assisted = run_assisted(models, plan.assisted, plan.dtype)
            print(comparisons.table([assisted]))
            ratio = assisted_ratio(assisted)
            is_equal &= ratio is not None
            found["assisted"] = comparisons.as_dict({}, {}, [assisted])["cases"]
    if "kernels" in parts:
        kernels = run_kernels(device, plan.kernels, bandwidth)
        print(tables.kernel_table(kernels))
        is_equal &= all(row.is_equal for row in kernels.rows)
        found["kernels"] = kernels.as_dict()
    goals = evaluate(points, ratio)
    is_rehearsal = plan.name != "gpu"
    print(tables.goal_table(goals))
    if is_rehearsal:
        print("A rehearsal: the goals are stated for an 8B model on a GPU and claim nothing here.")
    result = {
        "environment": {**began, "load_average_after": load_average(), "wall_s": perf_counter() - start},
        "plan": {**dataclasses.asdict(plan), "verification": verification},
        "is_rehearsal": is_rehearsal,
        "bandwidth": None if bandwidth is None else dataclasses.asdict(bandwidth),
        **found,
        "goals": [goal.as_dict() for goal in goals],
    }
    return result, is_equal


def environment(plan: Plan) -> dict[str, object]:
    """Return the provenance of a result, including the device."""
    device: dict[str, object] = {"type": plan.device}
    if plan.device == "cuda":
        found = torch.cuda.get_device_properties(0)
        device |= {
            "name": found.name,
            "memory_gb": round(found.total_memory / 2**30, 1),
            "compute_capability": f"{found.major}.{found.minor}",
            "cuda": torch.version.cuda,
        }
    versions = {}
    for name in _DISTRIBUTIONS:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return {**provenance(), "device": device, "num_threads": torch.get_num_threads(), "versions": versions}


def main() -> int:
    """Run, print, and write the result and its plot."""
    parser = argparse.ArgumentParser(description="the device benchmark")
    add = parser.add_argument
    add("plan", choices=PLANS, help="gpu, cpu (a rehearsal on the zoo) or tiny (for tests)")
    add("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="default: all")
    add(
        "--verification",
        choices=(STRICT, SYNTHETIC),
        default=STRICT,
        help="of steps: of drafts that are partly right (default), or by rate whatever is drafted",
    )
    add("--json", type=Path, help="where to write the result (default: benchmarks/results/device_PLAN.json)")
    arguments = parser.parse_args()
    plan = PLANS[arguments.plan]
    if plan.device == "cuda" and not torch.cuda.is_available():
        print(
            "device_bench gpu: torch sees no GPU here; `device_bench.py cpu` is the rehearsal",
            file=sys.stderr,
        )
        return 2
    result, is_equal = run(plan, arguments.parts, arguments.verification)
    file = arguments.json or RESULTS / f"device_{plan.name}.json"
    write(result, file)
    if "engine" in result:
        file.with_suffix(".svg").write_text(plot(result), encoding="utf-8")
    print(f"written: {file.name}")
    return 0 if is_equal else 1


if __name__ == "__main__":
    sys.exit(main())
