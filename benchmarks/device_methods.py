"""Every method on one device: are its texts those of plain decoding, how fast is it, and what does a step ask of the device?

    python benchmarks/device_methods.py --model zoo [--device cuda] [--dtype float32] [--methods ngram eagle3]

Each method runs in a process of its own, since an error of a device ends the process; several run at once with `--jobs`
(then the times say nothing). Texts are compared token by token with those of plain decoding on the same device, and plain
greedy texts with `generate` of transformers. Exit status: 1 if a text differs where none may, or a method fails.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from common.provenance import provenance
from common.results import RESULTS, write
from device.method_plan import CONFIGURATIONS, PLAIN
from device.method_run import run_method


def _run_alone(options: argparse.Namespace, method: str, folder: Path) -> dict[str, Any]:
    """Run a method in a new process; returns its result, or the end of what the process wrote."""
    file = folder / f"{method}.json"
    command = [
        sys.executable, __file__, "--one", method, "--json", str(file), "--plain", str(folder / f"{PLAIN}.json"),
        "--model", options.model, "--device", options.device, "--dtype", options.dtype,
        "--memory", str(options.memory), "--num-prompts", str(options.num_prompts),
        "--max-tokens", str(options.max_tokens), *(["--deterministic"] if options.deterministic else []),
    ]  # fmt: skip
    log = folder / f"{method}.log"
    with log.open("w") as out:
        try:
            status = subprocess.run(
                command, stdout=out, stderr=subprocess.STDOUT, timeout=options.limit
            ).returncode
        except subprocess.TimeoutExpired:
            status = 124
    if status == 0:
        found: dict[str, Any] = json.loads(file.read_text())
        return found
    text = log.read_text(errors="replace")
    return {"method": method, "error": f"exit status {status}", "log": text[-6000:]}


def _line(result: dict[str, Any]) -> str:
    """Return one row of the table."""
    name = result["method"]
    if "error" in result:
        return f"{name:16} {result['error']}: {result['log'].strip().splitlines()[-1:]}"
    cells = []
    for case, found in result["cases"].items():
        same = "" if found["num_same"] is None else f" {found['num_same']}/{found['num_texts']}"
        cells.append(f"{case} {found['tokens_per_s']:.0f}/s x{found['mean_acceptance_length']:.2f}{same}")
    step = result["step"]
    counted = " ".join(f"{key} {value:.1f}" for key, value in step.items())
    return f"{name:16} load {result['load_s']:.0f} s | " + " | ".join(cells) + f" | a step: {counted}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", default="zoo", help="'zoo', 'smollm2' or a path")
    add("--device", default="cuda")
    add("--dtype", default="float32")
    add("--deterministic", action="store_true", help="with the option of that name")
    add("--methods", nargs="+", default=None, help="default: all that fit the model")
    add("--num-prompts", type=int, default=8)
    add("--max-tokens", type=int, default=96)
    add("--memory", type=float, default=0.15, help="share of the device's memory for one engine")
    add("--jobs", type=int, default=1, help="methods at a time")
    add("--limit", type=float, default=240.0, help="most seconds of a method")
    add("--json", type=Path, default=RESULTS / "device_methods.json")
    add("--one", help=argparse.SUPPRESS)
    add("--plain", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        options.json.write_text(json.dumps(run_method(options.one, options)))
        return 0
    methods = options.methods or list(CONFIGURATIONS[options.model])
    began = provenance()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        results = [_run_alone(options, PLAIN, folder)]
        print(_line(results[0]), flush=True)
        with ThreadPoolExecutor(options.jobs) as pool:
            for result in pool.map(lambda method: _run_alone(options, method, folder), methods):
                print(_line(result), flush=True)
                results.append(result)
    for result in results:
        if "error" in result:
            print(f"--- {result['method']}\n{result['log']}")
    settings = {
        key: value for key, value in vars(options).items() if key not in ("json", "one", "plain", "limit")
    }
    write({"provenance": began, "settings": settings, "results": results}, options.json)
    is_exact = options.deterministic or options.dtype == "float32"
    return 1 if any(_is_wrong(result, is_exact=is_exact) for result in results) else 0


def _is_wrong(result: dict[str, Any], *, is_exact: bool) -> bool:
    """Whether a method failed, or a text differs that must not: in 16 bits rounding decides, but not with `deterministic`."""
    if "error" in result:
        return True
    return is_exact and any(case["differences"] and not case["are_ties"] for case in result["cases"].values())


if __name__ == "__main__":
    sys.exit(main())
