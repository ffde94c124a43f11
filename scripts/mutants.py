"""`python scripts/mutants.py [NAME ...]`: apply faults, one at a time, and name those that no test at the default level finds.

`mutants.toml` lists each file's faults: a text that it has once, what replaces it, and the tests that must fail then. Each is
applied to a copy of the working tree, `build/mutants`, where its tests run in a process of their own. The exit code is 1 if a
fault survives, if its text is not found, or if its tests fail without it. Run it before and after tests are removed or made
faster. All faults take about half an hour; `NAME` is a fault or the beginning of some, `--jobs 2` tries two at once.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from packages import ROOT, packages

FAULTS = Path(__file__).with_suffix(".toml")
FOLDER = ROOT / "build" / "mutants"
TIMEOUT_S = 900.0
_PASSED, _FAILED = 0, 1
"""Exit codes of pytest."""


@dataclass(frozen=True)
class Fault:
    """One applied fault."""

    name: str
    file: str
    text: str
    replaced: str
    tests: tuple[str, ...]
    """Node ids, files or folders."""

    def mutated(self, source: str) -> str:
        """Return the source of the file with the fault.

        Raises:
            ValueError: unless it has the text exactly once.
        """
        if (count := source.count(self.text)) != 1:
            raise ValueError(f"{self.file} has the text {count} times: correct it in {FAULTS.name}")
        return source.replace(self.text, self.replaced)


class Copy:
    """A copy of the working tree whose packages are imported instead of the installed ones.

    Args:
        number: which of the copies; each has a folder of its own, so that compiled code is found again.
    """

    def __init__(self, number: int) -> None:
        self.root = FOLDER / f"copy{number}"
        self._cache, self._spoilt = FOLDER / f"cache{number}", FOLDER / f"spoilt{number}"
        shutil.rmtree(self.root, ignore_errors=True)
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        ).stdout.decode()
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name)
        (self.root / ".venv").symlink_to(ROOT / ".venv")
        self._take_compiled(ROOT / ".pytest_cache" / "specdec" / "compiled")

    def _take_compiled(self, known: Path) -> None:
        """Take what the tests have compiled from the same sources; its folders are named after those of the sources."""
        shutil.rmtree(self._cache, ignore_errors=True)
        for package in packages():
            source = package.source
            for folder in (source, *(path for path in source.rglob("*") if path.is_dir())):
                if (compiled := known / _name_of(folder)).is_dir():
                    name = _name_of(self.root / folder.relative_to(ROOT))
                    shutil.copytree(compiled, self._cache / "compiled" / name)

    def fails(self, tests: Sequence[str], fault: Fault | None = None) -> tuple[int, str]:
        """Return pytest's exit code for some tests with a fault, or without any, and the last line of its output."""
        cache = self._cache
        if fault is not None:
            cache = self._spoilt  # of links to what is kept; a file that is kept anew is another one
            shutil.rmtree(cache, ignore_errors=True)
            if self._cache.is_dir():
                shutil.copytree(self._cache, cache, copy_function=os.link)
            return self._with_fault(fault, partial(self._run, tests, cache))
        return self._run(tests, cache)

    def _with_fault(self, fault: Fault, run: Callable[[], tuple[int, str]]) -> tuple[int, str]:
        file = self.root / fault.file
        whole = file.with_name(f"{file.name}.whole")
        mutated = fault.mutated(file.read_text(encoding="utf-8"))
        file.rename(whole)
        file.write_text(mutated, encoding="utf-8")
        try:
            return run()
        finally:
            whole.replace(file)

    def _run(self, tests: Sequence[str], cache: Path) -> tuple[int, str]:
        sources = [str(self.root / package.source.parent.relative_to(ROOT)) for package in packages()]
        paths = os.pathsep.join([*sources, *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = os.environ | {"PYTHONPATH": paths, "SPECDEC_CACHE": str(cache)}
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        try:
            done = subprocess.run(
                command, cwd=self.root, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            return _FAILED, f"not done after {TIMEOUT_S:g} s"
        lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return done.returncode, (lines or done.stdout.splitlines() or done.stderr.splitlines() or [""])[-1]


def _name_of(folder: Path) -> str:
    """Return the name of the folder for what is compiled from the sources in a folder; see `CodeCache.cache_path`."""
    return f"{folder.name}_{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}"


def read_faults(names: Sequence[str] = ()) -> list[Fault]:
    """Return the listed faults whose name begins with one of `names`, or all.

    Raises:
        ValueError: for a name that none begins with.
    """
    listed = tomllib.loads(FAULTS.read_text(encoding="utf-8"))
    found = [
        Fault(name, file, text, replaced, tuple(tests))
        for file, faults in listed.items()
        for name, (text, replaced, *tests) in faults.items()
    ]
    if unknown := [name for name in names if not any(fault.name.startswith(name) for fault in found)]:
        raise ValueError(f"no fault begins with {unknown[0]!r}")
    return [fault for fault in found if not names or fault.name.startswith(tuple(names))]


def tried(copies: list[Copy], fault: Fault) -> bool:
    """Try a fault in a copy that nobody uses, print what came of it, and return whether it was found."""
    copy, started = copies.pop(), time.monotonic()
    try:
        code, line = copy.fails(fault.tests, fault)
    except ValueError as error:
        code, line = _PASSED, str(error)
    finally:
        copies.append(copy)
    verdict = {_PASSED: "SURVIVES", _FAILED: "found"}.get(code, f"pytest exits with {code}")
    print(f"{verdict:10}{fault.name:42}{time.monotonic() - started:6.0f} s  {line:.150}", flush=True)
    return code == _FAILED


def main() -> int:
    """Try the faults of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="faults, or beginnings of their names")
    parser.add_argument("--jobs", type=int, default=1, help="how many are tried at once")
    parser.add_argument("--unchanged", action="store_true", help="only run their tests, which must pass")
    given = parser.parse_args()
    faults = read_faults(given.names)
    copies = [Copy(number) for number in range(given.jobs)]
    tests = sorted({test for fault in faults for test in fault.tests})
    if given.unchanged:
        code, line = copies[0].fails(tests)
        print(f"{len(tests)} files without a fault: {line}")
        return code
    with ThreadPoolExecutor(given.jobs) as pool:
        found = list(pool.map(partial(tried, copies), faults))
    print(f"{sum(found)} of {len(found)} faults are found")
    return 0 if all(found) else 1


if __name__ == "__main__":
    sys.exit(main())
