"""A submission made by hand, whose numbers are known, and a way to forge one."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from specdec_cli.arena.row import Row, StampRow
from specdec_cli.arena.submission import (
    PLAIN,
    Contestant,
    Files,
    Questions,
    file_sha256,
    write_submission,
)

NGRAM = "ngram k=2"
Change = Callable[[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]], None]
"""Changes facts, rows and rows of the stamp."""


def facts(*contestants: Contestant, **others: Any) -> dict[str, Any]:
    """Return the facts of a submission by hand."""
    return {
        "target": Files(name="tiny", sha256={"model.safetensors": "00"}),
        "dtype": "float32",
        "suite": Questions(name="spec_bench", sha256="11", numbers=[0, 1]),
        "contestants": [
            Contestant(name=PLAIN, acceptance="none"),
            *(contestants or [Contestant(name=NGRAM, acceptance="real", config={"method": "ngram"})]),
        ],
        "batch_size": [1],
        "max_tokens": 6,
        "temperature": 0.0,
        "seed": 0,
        "stamp_samples": 2,
        "stamp_temperature": 0.8,
        "environment": {
            "time": "2026-11-30T12:00:00+00:00",
            "command": ["specdec", "arena", "run"],
            "versions": {"specdec-core": "0.1.0"},
            "python": "3.11",
            "platform": "Linux",
            "num_cpus": 2,
            "cpu": "a processor",
            "num_threads": 2,
            "device": "cpu",
            "note": "",
        },
    } | others


def row(name: str, question: int, start: float, steps: Sequence[Any], tokens: Sequence[int]) -> Row:
    """Return a row at batch size 1."""
    return Row(
        contestant=name,
        batch_size=1,
        group=question,
        question=question,
        turn=0,
        category="qa" if question else "rag",
        prompt_sha256=str(question),
        start=start,
        steps=list(steps),
        tokens=list(tokens),
        finish="length",
    )


def rows_by_hand() -> list[Row]:
    """Return the answers of plain decoding and of one that drafts: in 10 ms steps, twice as fast on the second question."""
    one_each = [(0.01 * (place + 1), 1, 0, 0) for place in range(6)]
    drafted = [(0.01, 1, 0, 0), (0.02, 3, 2, 2), (0.03, 2, 2, 1)]
    return [
        row(PLAIN, 0, 0.0, one_each, range(6)),
        row(NGRAM, 0, 0.1, one_each, range(6)),
        row(PLAIN, 1, 0.2, one_each, range(6)),
        row(NGRAM, 1, 0.3, drafted, range(6)),
    ]


def stamp_by_hand() -> list[StampRow]:
    """Return a stamp without a difference."""
    found = []
    for name in (PLAIN, NGRAM):
        places = [{"5": -0.1, "6": -2.5}] * 3 if name == PLAIN else None
        drafted = 0 if name == PLAIN else 4
        found += [
            StampRow(
                contestant=name,
                prompt=0,
                prompt_sha256="p",
                temperature=temperature,
                answers=[[5, 5, 5]] if not temperature else [[1, 2], [1, 3]],
                places=places if not temperature else None,
                drafted=drafted,
            )
            for temperature in (0.0, 0.8)
        ]
    return found


def forge(folder: Path, change: Change, *, is_careful: bool | None = True) -> None:
    """Change a submission; a careful forger computes hashes and numbers again, with None the hashes alone."""
    told = json.loads((folder / "arena.json").read_text())
    rows, stamp = (
        [json.loads(line) for line in (folder / name).read_text().splitlines()]
        for name in ("rows.jsonl", "stamp.jsonl")
    )
    change(told, rows, stamp)
    if is_careful:
        kept = {key: told[key] for key in told if key not in ("rows_sha256", "numbers", "stamps")}
        kept["contestants"] = [Contestant.model_validate(entry) for entry in kept["contestants"]]
        write_submission(
            folder,
            kept,
            list(map(_row_as_it_is, rows)),
            list(map(StampRow.model_validate, stamp)),
        )
        return
    for name, lines in (("rows.jsonl", rows), ("stamp.jsonl", stamp)):
        (folder / name).write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
        if is_careful is None:
            told["rows_sha256"][name] = file_sha256(folder / name)
    (folder / "arena.json").write_text(json.dumps(told))


def _row_as_it_is(entry: dict[str, Any]) -> Row:
    """Return a row, possible or not."""
    told = entry.get("drafting")
    tuples = {"steps": list(map(tuple, entry["steps"])), "drafting": told and tuple(told)}
    return Row.model_construct(**entry | tuples)
