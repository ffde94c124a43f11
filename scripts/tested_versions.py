"""`ENVIRONMENT/bin/python scripts/tested_versions.py FILE.xml ...`: note what passed with this environment's `transformers`.

The files are pytest's (`--junitxml`). A line of `tests/results/versions.json` is replaced where a version has one already.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from readme_table import markdown_table

RESULTS = Path(__file__).parents[1] / "tests/results/versions.json"
PARTS = {
    "the adapter": "adapters.transformers.tests",
    "all causal classes": "tests.test_sweep",
    "hybrids": "tests.test_identity_hybrids",
    "heads of exporters": "tests.test_exporters",
}
"""What the tests of a module, or of a folder, are of."""


def outcomes(files: list[str]) -> dict[str, dict[str, int]]:
    """Return for each part how many tests passed, failed and were skipped."""
    counts: dict[str, Counter[str]] = {part: Counter() for part in PARTS}
    for test in (test for file in files for test in ElementTree.parse(file).iter("testcase")):
        outcome = next(
            (child.tag for child in test if child.tag in {"failure", "error", "skipped"}), "passed"
        )
        for part, module in PARTS.items():
            if f"{test.get('classname')}.".startswith(f"{module}."):
                counts[part][outcome] += 1
    return {part: dict(count) for part, count in counts.items()}


def tested_versions(file: Path) -> str:
    """The noted versions as a table, the oldest first."""
    rows: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    table = [["transformers", "torch", *PARTS, "date"]]
    for name in sorted(rows, key=lambda name: [*map(int, name.split("."))]):
        row = rows[name]
        told = [
            ", ".join(f"{count} {outcome}" for outcome, count in row[part].items()) or "not run"
            for part in PARTS
        ]
        table.append([name, row["torch"], *told, row["date"]])
    return markdown_table(table)


def main(files: list[str]) -> None:
    """Note what the files say."""
    rows = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    noted = {"torch": version("torch").partition("+")[0], "date": f"{datetime.now(UTC):%Y-%m-%d}"}
    rows[version("transformers")] = noted | outcomes(files)
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(rows[name])}" for name in sorted(rows))
    RESULTS.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
