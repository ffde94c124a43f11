"""Everything that needs a GPU, in parts that can be resumed: make gpu OUT=FOLDER.

    python scripts/gpu.py --out FOLDER [--parts tests zoo] [--list]

For a machine with a GPU that holds Python, torch, transformers and Triton but perhaps no package index: `--list` names the
packages that are missing there, to be brought as wheels. This repository is not installed: its folders go on PYTHONPATH, with
the metadata that `pip install -e` has left in them or that this script writes. A part that has ended well is not run again; its
output is in OUT/PART.log, and results are in OUT too.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_IMPORTS = {"pyyaml": "yaml"}
"""Names that packages are imported by, where they differ from their own by more than a dash."""
_NEEDED = (
    "core",
    "kernels",
    "runtime",
    "cli",
    "testing",
    "train",
    "plugins/eagle",
    "plugins/mlp",
    "plugins/ngram",
)
"""Packages whose dependencies the parts need."""


@dataclass(frozen=True)
class Job:
    """One command.

    Args:
        command: arguments of Python; `{out}` is the folder of results.
        minutes: time limit.
    """

    command: tuple[str, ...]
    minutes: float = 9.0


_METHODS = ("benchmarks/device_methods.py", "--jobs", "4")
PARTS = {
    "environment": Job(("-m", "specdec_cli", "doctor"), 2),
    "tests": Job((
        "-m", "pytest", "-q", "-m", "gpu", "-n", "6", "-W", "default", "kernels", "core", "runtime", "plugins",
    )),
    "zoo": Job((*_METHODS, "--json", "{out}/device_zoo.json")),
    "zoo_bfloat16": Job((*_METHODS, "--dtype", "bfloat16", "--deterministic", "--json", "{out}/device_zoo_bfloat16.json")),
    "smollm2": Job((*_METHODS, "--model", "smollm2", "--json", "{out}/device_smollm2.json")),
    "steps": Job(("benchmarks/device_bench.py", "gpu", "--parts", "engine", "--json", "{out}/device_gpu.json")),
    "assisted": Job(("benchmarks/device_bench.py", "gpu", "--parts", "assisted", "--json", "{out}/device_assisted.json")),
    "kernels": Job(("benchmarks/device_bench.py", "gpu", "--parts", "kernels", "--json", "{out}/device_kernels.json")),
    "train": Job((
        "-m", "specdec_cli", "train", "eagle3", "--target", "smollm2", "--self-instruct", "20000", "--minutes", "8",
        "--out", "{out}/eagle3",
    )),
}  # fmt: skip
"""Parts by name, in their order."""


def missing_packages() -> list[str]:
    """Return the names of needed packages that cannot be imported here."""
    tools = ("pytest", "pytest_timeout", "xdist", "hypothesis")
    found = {name for name in tools if importlib.util.find_spec(name) is None}
    for folder in _NEEDED:
        project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
        for requirement in project["dependencies"]:
            name = requirement.split(";")[0].split("[")[0].split("=")[0].split(">")[0].strip().lower()
            module = _IMPORTS.get(name, name.replace("-", "_"))
            if not name.startswith("specdec") and importlib.util.find_spec(module) is None:
                found.add(name)
    return sorted(found)


def sources() -> Iterator[Path]:
    """Yield the `src` folders of all packages of this repository."""
    for project in sorted(ROOT.glob("*/pyproject.toml")) + sorted(ROOT.glob("*/*/pyproject.toml")):
        if project.parent.parent.name != "examples" and (project.parent / "src").is_dir():
            yield project.parent / "src"


def write_metadata(source: Path, folder: Path) -> None:
    """Write the distribution metadata of a package, which its entry points are found by."""
    project = tomllib.loads((source.parent / "pyproject.toml").read_text())["project"]
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    lines = [f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}"]
    lines += [f"Requires-Dist: {requirement}" for requirement in project.get("dependencies", ())]
    (info / "METADATA").write_text("\n".join(lines) + "\n")
    groups = dict(project.get("entry-points", {}))
    if "scripts" in project:
        groups["console_scripts"] = project["scripts"]
    text = "".join(
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in entries.items()) + "\n"
        for group, entries in groups.items()
    )
    (info / "entry_points.txt").write_text(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts that have not ended well yet."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu", help="folder of logs and results")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--list", action="store_true", help="name the packages that are missing, and end")
    options = parser.parse_args(arguments)
    missing = missing_packages()
    if options.list or missing:
        print("missing: " + (" ".join(missing) or "nothing"))
        return 1 if missing else 0
    out = options.out.resolve()
    (out / "metadata").mkdir(parents=True, exist_ok=True)
    folders = list(sources())
    for source in folders:
        write_metadata(source, out / "metadata")
    paths = [*map(str, folders), str(out / "metadata"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONUNBUFFERED": "1"}
    status = 0
    for name in options.parts:
        status |= _run(name, PARTS[name], out, environment)
    return status


def _run(name: str, part: Job, out: Path, environment: dict[str, str]) -> int:
    """Run a part unless it has ended well before; returns whether it failed."""
    done, log = out / f"{name}.done", out / f"{name}.log"
    if done.exists():
        print(f"{name}: done before")
        return 0
    command = [sys.executable, *(word.format(out=out) for word in part.command)]
    started = time.monotonic()
    with log.open("w") as file:
        try:
            status = subprocess.run(
                command,
                cwd=ROOT,
                env=environment,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=60 * part.minutes,
            ).returncode
        except subprocess.TimeoutExpired:
            status = 124
    print(
        f"{name}: {'ended well' if status == 0 else f'exit status {status}'} after {time.monotonic() - started:.0f} s, {log}"
    )
    if status == 0:
        done.touch()
    return int(status != 0)


if __name__ == "__main__":
    sys.exit(main())
