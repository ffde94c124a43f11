"""`python scripts/wheels.py OUT`: build the wheel of every package, without network access."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from packages import packages

LEFTOVERS = shutil.ignore_patterns("build", "dist", "*.egg-info", "__pycache__", ".*_cache")


def build(project: Path, out: Path) -> Path:
    """Build the wheel of a project's folder into `out` and return its path.

    It is built from a copy, since an old `build` folder would restore deleted files.

    Raises:
        subprocess.CalledProcessError: if the build fails; pip's output is shown.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / project.name
        shutil.copytree(project, copy, ignore=LEFTOVERS)
        wheels = Path(folder) / "wheels"
        options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(wheels)]
        subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(copy)], check=True)
        (wheel,) = wheels.iterdir()
        out.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(wheel, out))


def main(arguments: list[str]) -> int:
    """Build all wheels."""
    if len(arguments) != 1:
        print("usage: python scripts/wheels.py OUT", file=sys.stderr)
        return 2
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for wheel in pool.map(lambda package: build(package.folder, Path(arguments[0])), packages()):
            print(wheel)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
