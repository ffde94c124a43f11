"""`python scripts/unseen.py`: name the releases, with their dates, that `make test-newest` would install and has not seen.

What pip would install is found by pip, within the declared ranges; what has been seen is in `newest.txt`, which
`make test-newest` writes once its tests have passed, and whoever ran it commits.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from urllib.error import URLError
from urllib.request import urlopen

from packages import ROOT

SEEN = ROOT / "newest.txt"
INDEX = "https://pypi.org/pypi"


def newest() -> dict[str, str]:
    """Return the version of each library that pip would install."""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as report:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        command += ["--no-build-isolation", "--report", report.name, "-r", str(ROOT / "requirements.txt")]
        subprocess.run(command, cwd=ROOT, check=True)
        found = [entry["metadata"] for entry in json.load(report)["install"]]
    return {entry["name"].lower(): entry["version"] for entry in found}


def released(name: str, version: str, index: str = INDEX) -> str:
    """Return when a version was uploaded, as the index tells it."""
    try:
        with urlopen(f"{index}/{name}/{version}/json", timeout=30) as answer:
            uploads: list[str] = [file["upload_time_iso_8601"] for file in json.load(answer)["urls"]]
    except URLError as error:
        return f"at a date that {index} does not tell ({error.reason})"
    return min(uploads)[:10]


def unseen(newest: dict[str, str], seen: str, index: str = INDEX) -> list[str]:
    """Return a line for each library of `seen`, lines of `name==version`, whose newest version is another one."""
    versions = dict(line.partition("+")[0].split("==") for line in seen.splitlines())
    found = {name: newest[name].partition("+")[0] for name in versions if name in newest}
    return [
        f"{name} {version}, released {released(name, version, index)} (seen: {versions[name]})"
        for name, version in sorted(found.items())
        if version != versions[name]
    ]


if __name__ == "__main__":
    for line in unseen(newest(), SEEN.read_text(encoding="ascii")):
        print(line)
