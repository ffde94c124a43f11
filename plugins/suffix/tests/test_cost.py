"""The benchmark runs, and finds the library's own drafts."""

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "suffix_cost.py"


def test_the_benchmark_compares_equal_drafts(tmp_path) -> None:
    out = tmp_path / "cost.json"
    command = [sys.executable, str(SCRIPT), "--quick", "--contexts", "200", "400", "--batch-size", "3"]
    # Times of so little work mean nothing; `--limit` is for real runs.
    done = subprocess.run(
        [*command, "--limit", "1000", "--json", str(out)],
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(out.read_text())["rows"]
    assert [row["context"] for row in rows] == [200, 400]
    assert all(row["num_differences"] == 0 and row["drafted_per_row"] > 0 for row in rows)
