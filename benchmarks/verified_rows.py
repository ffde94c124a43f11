"""What a pass over weights in blocks costs by its number of rows: a row is the last token or a drafted one.

    python benchmarks/verified_rows.py [--model smollm2] [--rows 1 2 ...] [--before FILE] [--json FILE]

Each tier of this processor has a process of one thread, whose processor time is counted, so that other programs on the machine
do not. In each round all numbers of rows have their turn; the least time of the rounds is kept. Passes are those of the model,
behind 200 tokens; products alone are of random weights in shapes of larger models. Beside them: summing as many bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from common.model import gguf_of
from common.provenance import load_average, provenance
from common.results import RESULTS

ROWS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 64, 128, 512)
SHAPES = ((2048, 2048), (8192, 2048), (2048, 8192))
KIND = "Q4_K"
BITS = (16, 8)
"""Of activations: exact for bfloat16, and rounded."""
CONTEXT = 200
COLUMNS = ("target", "case", "activation_bits", "read_ms", "milliseconds by number of rows")


def least(calls: dict[Any, Callable[[], object]], rounds: int) -> dict[Any, float]:
    """Return the least milliseconds of each call, which take turns; the first turn is not counted."""
    best = dict.fromkeys(calls, float("inf"))
    for turn in range(rounds + 1):
        for name, call in calls.items():
            start = time.thread_time()
            call()
            spent = 1e3 * (time.thread_time() - start)
            best[name] = min(best[name], spent) if turn else best[name]
    return best


def measure(model: Path, rows: Sequence[int], rounds: int) -> list[list[Any]]:
    """Return the rows of a result for the target of this process."""
    import torch

    from specdec.engine_options import EngineOptions
    from specdec_kernels.cpu.compiled.target import TARGET
    from specdec_kernels.cpu.linear import BlockProduct
    from specdec_runtime.interfaces import BlockLinear, PackedBatch, Segment
    from specdec_runtime.interfaces.blocks import BlockWeights
    from specdec_runtime.loading.target import load_target
    from specdec_runtime.runner import ModuleRunner

    torch.set_num_threads(1)
    found: list[list[Any]] = []
    name = "this processor" if TARGET is None else TARGET.name

    def add(case: str, bits: int, num_bytes: int, calls: dict[Any, Callable[[], object]]) -> None:
        array = torch.ones(num_bytes // 4)
        with torch.inference_mode():
            best = least({"read": array.sum, **calls}, rounds)
        times = [round(best[number], 3) for number in rows]
        print(name, case, bits, *times, file=sys.stderr, flush=True)
        found.append([name, case, bits, round(best["read"], 3), times])

    def pass_of(runner: ModuleRunner, count: int, first: int) -> None:
        ids, positions = torch.arange(5, 5 + count), torch.arange(first, first + count)
        runner.forward(PackedBatch(ids, positions, [Segment(0, count, 0, first)], None, None))

    for bits in BITS:
        target = load_target(
            EngineOptions(
                model=str(model),
                dtype="bfloat16",
                weights="published",
                activation_bits=8 if bits == 8 else None,
            )
        )
        runner = ModuleRunner(target.model, torch.device("cpu"), CONTEXT + max(rows))
        runner.allocate(CONTEXT + max(rows))
        with torch.inference_mode():
            pass_of(runner, CONTEXT, 0)
        held = {
            m.weight.data_ptr(): m.weight.nbytes
            for m in runner.module.modules()
            if isinstance(m, BlockWeights)
        }
        calls: dict[Any, Callable[[], object]] = {
            count: partial(pass_of, runner, count, CONTEXT) for count in rows
        }
        add(f"pass of {model.stem}", bits, sum(held.values()), calls)
    for num_out, depth in SHAPES:
        for bits in BITS:
            linear = BlockLinear(KIND, num_out, depth)
            linear.weight.random_(0, 64)
            linear.input_bits = bits
            product = BlockProduct([linear])
            products: dict[Any, Callable[[], object]] = {
                count: partial(product, torch.randn(count, depth).bfloat16()) for count in rows
            }
            add(f"{num_out} x {depth} {KIND}", bits, linear.weight.nbytes, products)
    return found


def targets() -> list[str]:
    """Return the tiers to measure: the best of this processor, and the least."""
    from llvmlite import binding

    from specdec_kernels.cpu.compiled.target import HOST_FEATURES, fitting

    found = fitting(HOST_FEATURES, binding.get_host_cpu_name())
    plain = [target for target in found if not target.tuning]  # in order, others may come last
    return list(dict.fromkeys(target.name for target in found[:1] + plain[-1:])) or [""]


def main() -> int:
    """Measure each tier in a process of its own, print and write."""
    parser = argparse.ArgumentParser(description="what passes cost by the number of rows")
    add = parser.add_argument
    add("--model", default="smollm2", help="a GGUF file, or smollm2 (default)")
    add("--rows", nargs="+", type=int, default=list(ROWS), help="default: %(default)s")
    add("--rounds", type=int, default=4, help="default 4")
    add("--before", type=Path, help="a result of earlier code, kept beside this one")
    add("--json", type=Path, help="where to write the result (default: benchmarks/results)")
    add("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        print(json.dumps(measure(gguf_of(arguments.model), arguments.rows, arguments.rounds)))
        return 0
    began, rows = provenance(), []
    for target in targets():
        environment = os.environ | {"NUMBA_NUM_THREADS": "1", "SPECDEC_CPU_TARGET": target}
        command = [sys.executable, *sys.argv, "--worker"]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        rows += json.loads(done.stdout.splitlines()[-1])
    for target, case, bits, read, times in rows:
        over = [
            f"{number}: {spent / times[0]:.2f}" for number, spent in zip(arguments.rows, times, strict=True)
        ]
        print(
            f"{target}, {case}, {bits} bits: {times[0]:.2f} ms (reading {read:.2f}); over the first:", *over
        )
    content = {
        "environment": began | {"load_average_after": load_average()},
        "settings": {"rows": arguments.rows, "rounds": arguments.rounds, "context": CONTEXT},
        "columns": COLUMNS,
        "rows": rows,
    }
    if arguments.before is not None:
        content["before"] = json.loads(arguments.before.read_text(encoding="utf-8"))
    file = arguments.json or RESULTS / "verified_rows.json"
    file.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
