"""Runs this repository where it is not installed: its folders and the metadata of its packages on PYTHONPATH."""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_IMPORTS = {"huggingface-hub": "huggingface_hub", "pyyaml": "yaml"}
"""Names that packages are imported by, where they differ from their own by more than a dash."""
NEEDED = ("core", "kernels", "runtime", "cli", "plugins/eagle", "plugins/ngram", "plugins/self_draft")
"""Packages whose dependencies a visit needs."""
TOOLS = ("pytest", "pytest_timeout", "xdist", "hypothesis")
"""What the tests of a visit need besides."""


def missing(modules: Sequence[str] = ()) -> list[str]:
    """Return the names of modules, or by default of packages that `NEEDED` depends on, that cannot be imported here."""
    found = {name for name in modules if importlib.util.find_spec(name) is None}
    for folder in () if modules else NEEDED:
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


def prepare(out: Path, wheels: Path | None) -> dict[str, str]:
    """Return environment variables under which everything here is found, and have this process find what wheels bring.

    Args:
        out: folder for metadata and unpacked wheels.
        wheels: folder of wheels of packages that are missing here; None for none.
    """
    brought = out / "packages"
    if wheels is not None and not brought.exists():
        files = sorted(map(str, wheels.glob("*.whl")))
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-index",
            "--no-deps",
            "--target",
            str(brought),
        ]
        subprocess.run([*command, *files], check=True)
    if brought.exists():
        sys.path.insert(0, str(brought))
        importlib.invalidate_caches()
    (out / "metadata").mkdir(parents=True, exist_ok=True)
    folders = list(sources())
    for source in folders:
        write_metadata(source, out / "metadata")
    paths = [*map(str, folders), str(out / "metadata"), *([str(brought)] if brought.exists() else [])]
    joined = os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": joined, "PYTHONUNBUFFERED": "1"}
