"""`python scripts/compile_ahead.py [all | TARGET ...]`: compile what models run, and keep it beside the kernels' sources.

Wheels built afterwards bring it, and starts from this tree find it. By default it is compiled for this processor; `all` are the
targets that this processor runs (`specdec_kernels.cpu.compiled.target`). What is up to date is left as it is.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from time import perf_counter

from packages import packages

from specdec_kernels.cpu.compiled.cache import UNCOMPILED, ahead_folder, keep_ahead
from specdec_kernels.cpu.compiled.target import HOST_FEATURES, TARGET, TARGETS, Target, fitting

DTYPES = ("bfloat16", "float32")
HEADS = ("eagle", "eagle3", "draft_model")
"""Methods of which the zoo has a head or a draft model, and whose compiled passes have arguments of types of their own."""
METHODS = ("ngram", "self")
WEIGHTS = (
    "import numpy as np; from specdec_kernels.cpu.loops.weigh import weigher\n"
    "for dtype in (np.float32, np.uint16, np.int8, np.uint8, np.int64):\n"
    "    for is_draft in (False, True): weigher(np.empty(0, dtype), is_draft)\n"
    "import torch; from specdec_runtime.backends import reads_blocks; reads_blocks(torch.device('cpu'))\n"
    "from specdec_kernels.cpu.loops.blocks import block_table\n"
    "from specdec_runtime.interfaces.blocks import KINDS\n"
    "for kind in KINDS:\n"
    "    for num_digits in (1, 2, 3): block_table([(kind, 0, 0)], num_digits)"
)
"""Products with weights of every type, of which the zoo has one, and every kind of blocks."""
STAMP = "stamp"


def sources() -> str:
    """Return the digest of all that compiled code depends on."""
    digest = hashlib.sha256(f"{sys.version_info[:2]} {version('numba')} {version('llvmlite')}".encode())
    for file in sorted(file for package in packages() for file in package.source.rglob("*.py")):
        text = file.read_bytes()
        is_compiled = b"njit" in text or "cpu" in file.parts or file.name == "blocks.py"
        if is_compiled and file.name not in UNCOMPILED:
            digest.update(text)
    return digest.hexdigest()


def compile_for(target: Target) -> int:
    """Compile for a target, in a process for each dtype and one for weights; return the number of functions."""
    own = [{"method": method, "num_speculative_tokens": 5} for method in METHODS]
    heads = [{"method": head, "model": "zoo", "num_speculative_tokens": 5} for head in HEADS]
    heads.append(
        {**heads[0], "rejection_sample_method": "probabilistic", "draft_sample_method": "probabilistic"}
    )
    options = [
        each
        for config in ({"method": "auto"}, *own, *heads)
        for each in ("--speculative-config", json.dumps(config))
    ]
    shutil.rmtree(
        ahead_folder(target), ignore_errors=True
    )  # what is found there is not compiled, and so not kept
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "NUMBA_CACHE_DIR": folder, "NUMBA_CPU_NAME": target.cpu, "NUMBA_CPU_FEATURES": target.flags,
        }  # fmt: skip
        command = [sys.executable, "-m", "specdec_cli", "warmup", "--model", "zoo", *options]
        running = [subprocess.Popen([*command, "--dtype", dtype], env=environment) for dtype in DTYPES]
        running.append(subprocess.Popen([sys.executable, "-c", WEIGHTS], env=environment))
        failed = [process.args for process in running if process.wait() != 0]
        if failed:
            raise SystemExit(f"failed: {failed[0]!r}")
        return keep_ahead(target, Path(folder))


def main(arguments: list[str]) -> int:
    """Compile for the targets that are named."""
    runnable = fitting(HOST_FEATURES, "")
    known = {target.name: target for target in TARGETS}
    if arguments == ["all"]:
        wanted = runnable
    elif not set(arguments) <= set(known):
        print(f"usage: python scripts/compile_ahead.py [all | {' | '.join(known)} ...]", file=sys.stderr)
        return 2
    else:
        wanted = [known[name] for name in arguments] or [target for target in [TARGET] if target is not None]
    if not wanted:
        print("nothing is compiled ahead for this processor: its first start compiles")
    stamp = sources()
    for target in wanted:
        if target not in runnable:
            print(f"{target.name}: this processor does not run its code", file=sys.stderr)
            return 1
        file = ahead_folder(target) / STAMP
        if file.exists() and file.read_text(encoding="ascii") == stamp:
            continue
        print(f"compiling for {target.name}: a minute or two", flush=True)
        began = perf_counter()
        count = compile_for(target)
        file.write_text(stamp, encoding="ascii")
        size = sum(each.stat().st_size for each in file.parent.iterdir())
        print(f"{target.name}: {count} functions, {size / 1e6:.1f} MB, {perf_counter() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
