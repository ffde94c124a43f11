"""The numbers of a submission, all from its raw rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specdec_cli.arena.row import Row
from specdec_cli.arena.submission import PLAIN
from specdec_cli.bench.speedup import speedup_by_questions

PERCENTILES = (50, 95, 99)
OVERALL = "overall"


@dataclass(frozen=True)
class _Turn:
    """The rows of one contestant's turn: from the first request to the last token."""

    rows: Sequence[Row]

    @property
    def wall_s(self) -> float:
        return max(row.end for row in self.rows) - min(row.start for row in self.rows)

    @property
    def num_tokens(self) -> int:
        return sum(row.num_tokens for row in self.rows)


def numbers(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the numbers of each contestant and batch size, in the order of the rows.

    Tokens per second are over the contestant's turns. `ratio` compares it with plain decoding, with bounds at 95 % from
    resampling the turns; None without plain decoding. Milliseconds are percentiles 50, 95 and 99: to the first token,
    per later token of an answer, between two steps of an answer.
    """
    by_key: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        by_key.setdefault((row.contestant, row.batch_size), []).append(row)
    return [_numbers(name, size, found, by_key.get((PLAIN, size))) for (name, size), found in by_key.items()]


def _numbers(name: str, size: int, rows: Sequence[Row], plain: Sequence[Row] | None) -> dict[str, Any]:
    turns = _turns(rows)
    wall_s, num_tokens = (
        sum(turn.wall_s for turn in turns.values()),
        sum(turn.num_tokens for turn in turns.values()),
    )
    timed = [row for row in rows if row.steps]
    gaps = [b[0] - a[0] for row in timed for a, b in zip(row.steps, row.steps[1:], strict=False)]
    per_token = [
        (row.steps[-1][0] - row.steps[0][0]) / (row.num_tokens - row.steps[0][1])
        for row in timed
        if row.num_tokens > row.steps[0][1]
    ]
    categories = dict.fromkeys(row.category for row in rows)
    return {
        "contestant": name,
        "batch_size": size,
        "requests": len(rows),
        "tokens": num_tokens,
        "wall_s": wall_s,
        "tokens_per_s": num_tokens / wall_s if wall_s else 0.0,
        "ratio": _ratio(turns, _turns(plain)) if plain and name != PLAIN else None,
        "same_text": _same_text(rows, plain) if plain and name != PLAIN else None,
        "ttft_ms": _percentiles([row.steps[0][0] for row in timed]),
        "tpot_ms": _percentiles(per_token),
        "itl_ms": _percentiles(gaps),
        "by_category": {OVERALL: _acceptance(rows)}
        | {category: _acceptance([r for r in rows if r.category == category]) for category in categories},
    }


def _turns(rows: Sequence[Row]) -> dict[int, _Turn]:
    groups: dict[int, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    turns = {number: _Turn(found) for number, found in groups.items()}
    return {number: turn for number, turn in turns.items() if turn.num_tokens}


def _ratio(turns: dict[int, _Turn], plain: dict[int, _Turn]) -> list[float] | None:
    both = [number for number in turns if number in plain]
    if not both:
        return None
    pair = [[[found[number] for number in both]] for found in (turns, plain)]
    return list(speedup_by_questions(*pair))


def _same_text(rows: Sequence[Row], plain: Sequence[Row]) -> float:
    texts = {(row.question, row.turn): (row.tokens, row.text) for row in plain}
    return sum(texts.get((row.question, row.turn)) == (row.tokens, row.text) for row in rows) / len(rows)


def _percentiles(seconds: Sequence[float]) -> list[float] | None:
    return [1e3 * float(value) for value in np.percentile(seconds, PERCENTILES)] if seconds else None


def _acceptance(rows: Sequence[Row]) -> dict[str, float | None]:
    """Return the share of drafted tokens that were accepted, and tokens per step; None where unknown.

    The last step of an answer does not count for the share: its end may have cut accepted tokens.
    """
    inner = [step for row in rows for step in row.steps[:-1] if len(step) == 4]
    drafted, accepted = sum(step[2] for step in inner), sum(step[3] for step in inner)
    told = [row.drafting for row in rows if row.drafting is not None]
    if told:
        drafted, accepted = sum(counts[1] for counts in told), sum(counts[2] for counts in told)
    num_steps = sum(row.num_steps or sum(bool(step[1]) for step in row.steps) for row in rows)
    return {
        "acceptance_rate": accepted / drafted if drafted else None,
        "tokens_per_step": sum(row.num_tokens for row in rows) / num_steps if num_steps else None,
    }
