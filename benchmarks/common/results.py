"""Print results as tables and write them to files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from common.case import CaseResult, Row, row_as_dict
from common.drafts import acceptance
from common.process import BENCHMARKS
from common.provenance import load_average

RESULTS = BENCHMARKS / "results"
_HEAD = (
    "| dtype | batch | ours | peer | ours tok/s | peer tok/s | ratio [95 %] | same tokens |\n|" + "---|" * 8
)


def table(results: Sequence[CaseResult]) -> str:
    """Return all rows as a Markdown table, then acceptance where engines count it, warnings and divergences."""
    lines = [_HEAD, *(_line(row) for result in results for row in result.rows)]
    lines += [line for result in results for line in _acceptance(result)]
    lines += [f"WARNING: {warning}" for result in results for warning in result.warnings]
    lines += [note for result in results for row in result.rows for note in _notes(row)]
    return "\n".join(lines)


def _line(row: Row) -> str:
    cells = [
        row.ours.dtype,
        str(row.batch_size),
        row.ours.name,
        row.peer.name,
        f"{row.ours_tokens_per_s:.0f}" if row.gate.is_passed else "",
        f"{row.peer_tokens_per_s:.0f}" if row.gate.is_passed else "",
        "GATE FAILED" if row.ratio is None else str(row.ratio),
        f"{row.gate.num_identical} of {row.gate.num_prompts}",
    ]
    return "| " + " | ".join(cells) + " |"


def _acceptance(result: CaseResult) -> list[str]:
    """Mean acceptance lengths of a case."""
    shown = {name: acceptance(item.counters) for name, item in result.measurements.items()}
    return [
        f"acceptance length of {name}, {result.case.dtype}, batch {result.case.batch_size}: {text}"
        for name, text in shown.items()
        if text is not None
    ]


def _notes(row: Row) -> list[str]:
    if not row.gate.is_required:
        return []
    return [
        f"{'tie' if item.is_tie else 'DIVERGENCE'}: {row.ours.name} {item.ours}, {row.peer.name} {item.peer} "
        f"at new token {item.position} of prompt {item.prompt}; gap in float64 {item.gap:.1e}"
        for item in row.gate.divergences
    ]


def as_dict(
    provenance: dict[str, object], settings: dict[str, object], results: Sequence[CaseResult]
) -> dict[str, object]:
    """Return the content of a result file: everything about a run except the tokens."""
    cases = []
    for result in results:
        measured = {name: asdict(item) for name, item in result.measurements.items()}
        for item in measured.values():
            del item["token_ids"]
        cases.append(
            {
                "dtype": result.case.dtype,
                "batch_size": result.case.batch_size,
                "prompt_lengths": [len(prompt) for prompt in result.case.prompts],
                "rows": [row_as_dict(row) for row in result.rows],
                "variants": {
                    variant.name: {
                        "settings": _shown(variant.settings),
                        "worker": result.workers[variant.name],
                        **measured[variant.name],
                    }
                    for variant in result.case.variants
                },
                "warnings": result.warnings,
            }
        )
    return {
        "environment": {**provenance, "load_average_after": load_average()},
        "settings": settings,
        "cases": cases,
    }


def _shown(settings: object) -> object:
    """Return settings with absolute paths replaced by their names."""
    if isinstance(settings, dict):
        return {key: _shown(value) for key, value in settings.items()}
    if isinstance(settings, str) and Path(settings).is_absolute():
        return Path(settings).name
    return settings


def write(content: dict[str, object], file: Path) -> None:
    """Write a result file; create its folder if needed."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
