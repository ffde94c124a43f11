"""`python scripts/bump.py 0.2.0`: set the version of every official package, and every pin on a sibling."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from packages import ROOT, packages

VERSION = r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?"


def bumped(text: str, siblings: list[str], version: str) -> str:
    """Return a pyproject, CITATION.cff or a module with `__version__`, with all official versions set to `version`."""
    names = "|".join(re.escape(name) for name in sorted(siblings, key=len, reverse=True))
    text = re.sub(
        r'^((?:__version__|version) = ")[^"]*(")$', rf"\g<1>{version}\g<2>", text, count=1, flags=re.M
    )
    text = re.sub(r"^version: \S+$", f"version: {version}", text, flags=re.M)
    return re.sub(rf'("(?:{names})(?:\[[^\]]*\])?==)[^";, ]+', rf"\g<1>{version}", text)


def files() -> list[Path]:
    """Return the files that contain a version."""
    return [
        *(package.folder / "pyproject.toml" for package in packages()),
        ROOT / "core/src/specdec/__init__.py",
        ROOT / "CITATION.cff",
    ]


def main(arguments: list[str]) -> int:
    """Rewrite all files that contain a version."""
    if len(arguments) != 1 or not re.fullmatch(VERSION, arguments[0]):
        print("usage: python scripts/bump.py VERSION, for instance 0.2.0 or 0.2.0rc1", file=sys.stderr)
        return 2
    siblings = [package.name for package in packages()]
    for file in files():
        file.write_text(bumped(file.read_text(encoding="utf-8"), siblings, arguments[0]), encoding="utf-8")
        print(file.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
