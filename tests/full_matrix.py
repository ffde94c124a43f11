"""Writes tests/results/matrix.json: every sampler, draft kind and sampling parameter, right and with its mutant.

python tests/full_matrix.py [PARAMETER ...]

With parameters only their rows are made anew, and the others kept as they are.
"""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))
sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from matrix_table import read_cells, write_cells
from speccheck.matrix import CELLS, DRAFTS, NUM_SAMPLES, PARAMETERS, SAMPLERS, Result, check
from speccheck.mutants import MUTANTS
from speccheck.zoo_run import RESULTS, provenance


def cell(sampler: str, draft: str, name: str) -> dict[str, Any]:
    """Check one cell, then the same cell broken."""
    mutant = PARAMETERS[name].mutants[draft != "none"]
    right = check(sampler, draft, name)
    with pytest.MonkeyPatch.context() as patch:
        MUTANTS[mutant](patch)
        broken = check(sampler, draft, name)
    return {
        "sampler": sampler,
        "draft": draft,
        "parameter": name,
        "num_accepted": right.num_accepted,
        "ratio": _ratio(right),
        "mutant_ratio": _ratio(broken),
    }


def _ratio(result: Result) -> float | None:
    """The statistic over its bound, three digits; None for a text that cannot occur."""
    return None if math.isinf(result.value) else float(f"{result.value / result.limit:.3g}")


def is_good(row: dict[str, Any]) -> bool:
    """Whether the cell holds, drafts took part, and its mutant was caught."""
    holds = (
        row["ratio"] is not None
        and row["ratio"] < 1
        and (row["num_accepted"] > 0) == (row["draft"] != "none")
    )
    return holds and (row["mutant_ratio"] is None or row["mutant_ratio"] >= 1)


def main() -> int:
    """Run, write, and return 1 if a cell does not hold or lets its mutant pass."""
    started = time.perf_counter()
    file = RESULTS / "matrix.json"
    names = sys.argv[1:] or list(PARAMETERS)
    unknown = sorted(set(names) - set(PARAMETERS))
    if unknown:
        print(f"no parameters {unknown}; there are: {', '.join(PARAMETERS)}", file=sys.stderr)
        return 2
    known: list[dict[str, Any]] = []
    if sys.argv[1:]:
        known = read_cells(file)
    rows: list[dict[str, Any]] = []
    for name in PARAMETERS:
        if name not in names:
            rows += [row for row in known if row["parameter"] == name]
            continue
        for sampler in SAMPLERS:
            rows += [cell(sampler, draft, name) for draft in DRAFTS if (sampler, draft, name) in CELLS]
        print(f"{name}: {len(rows)} cells, {time.perf_counter() - started:.0f} s", flush=True)
    bad = [row for row in rows if not is_good(row)]
    for row in bad:
        print("NOT GOOD", row)
    RESULTS.mkdir(exist_ok=True)
    write_cells(file, rows, {"num_samples": NUM_SAMPLES, "provenance": provenance()})
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
