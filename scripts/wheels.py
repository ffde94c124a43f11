"""`python scripts/wheels.py OUT`: build the wheel of every package, without network access."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from packages import packages

LEFTOVERS = shutil.ignore_patterns("build", "dist", "*.egg-info", "__pycache__", ".*_cache")

MACHINE = f"manylinux_2_17_{platform.machine()}" if sys.platform == "linux" else sysconfig.get_platform()
TAGS = {
    "--build-option": [f"--python-tag=cp{sys.version_info[0]}{sys.version_info[1]}", f"--plat-name={MACHINE}"]
}
"""Of a wheel with code compiled ahead: numba keeps it for one version of Python. Elsewhere pip takes the wheel without."""


def build(project: Path, out: Path) -> Path:
    """Build the wheel of a project's folder into `out` and return its path.

    It is built from a copy, since an old `build` folder would restore deleted files, and by its backend alone, as pip does it,
    which would start four processes.

    Raises:
        subprocess.CalledProcessError: if the build fails; the output is shown.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / project.name
        shutil.copytree(project, copy, ignore=LEFTOVERS)
        wheels = Path(folder) / "wheels"
        wheels.mkdir()
        backend = tomllib.loads((copy / "pyproject.toml").read_text(encoding="utf-8"))["build-system"][
            "build-backend"
        ]
        settings = TAGS if any(copy.glob("src/*/cpu/ahead/*/*.nbc")) else {}
        code = f"import sys; from {backend} import build_wheel; build_wheel(sys.argv[1], {settings!r})"
        done = subprocess.run([sys.executable, "-c", code, wheels], cwd=copy, capture_output=True, text=True)
        if done.returncode:
            print(done.stdout, done.stderr, file=sys.stderr)
        done.check_returncode()
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
