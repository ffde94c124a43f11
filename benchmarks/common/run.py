"""Run cases, print a table and write a result file."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from common.case import Case, CaseResult, result_of, start_case
from common.model import resolve_model
from common.options import Options
from common.pool import EngineHome, Pool
from common.process import WorkerError
from common.prompts import load_prompts
from common.provenance import provenance
from common.results import RESULTS, as_dict, table, write
from common.ties import Float64Target


def read_prompts(options: Options, count: int) -> list[list[int]]:
    """Return `count` prompts that leave room for the new tokens."""
    model = resolve_model(options.model)
    return load_prompts(options.prompts, model, count, options.max_model_len - options.max_tokens)


def run(
    name: str,
    options: Options,
    cases: Sequence[Case],
    homes: Mapping[str, EngineHome] | None = None,
    settings: Mapping[str, object] | None = None,
) -> int:
    """Run cases, print the table, write the result; return an exit status.

    Args:
        name: of the comparison; names the result file.
        options: the shared options.
        cases: what to run; cases with the same dtype share their workers.
        homes: interpreters and environments of engines that do not run in this environment.
        settings: further settings for the result.

    Returns:
        0; 1 if a case failed the correctness gate; 2 if a worker failed.
    """
    model = resolve_model(options.model)
    began = provenance()
    target = Float64Target(model)
    results: list[CaseResult] = []
    try:
        for dtype in dict.fromkeys(case.dtype for case in cases):
            group = [case for case in cases if case.dtype == dtype]
            largest = max(case.batch_size for case in group)
            starts = []
            for _ in range(options.starts):
                with Pool(model, options.max_model_len, largest, homes, options.prefix) as pool:
                    starts.append([start_case(c, pool, options.max_tokens, options.rounds) for c in group])
            results += [
                result_of(case, found, target.top2_gap) for case, *found in zip(group, *starts, strict=True)
            ]
    except WorkerError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    print(table(results))
    file = options.json or (None if options.is_quick else RESULTS / f"{name}.json")
    if file is not None:
        write(as_dict(began, {**options.as_dict(), **(settings or {})}, results), file)
        print(f"written: {file.name}")
    return 0 if all(row.gate.is_passed for result in results for row in result.rows) else 1
