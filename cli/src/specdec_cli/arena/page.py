"""The page of a board."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specdec_cli.arena.numbers import OVERALL
from specdec_cli.arena.stamp import LOSSLESS, NOT_LOSSLESS
from specdec_cli.arena.submission import PLAIN, Facts, Submission
from specdec_cli.audit.chi_square import POWER
from specdec_cli.page_template import page_template

COLUMNS = (
    *("contestant", "tokens/s", "to plain", "bounds", "stamp", "accepted", "tokens a step", "same text"),
    *("TTFT, ms", "TPOT, ms", "ITL, ms"),
)
"""Times are percentiles 50, 95 and 99."""


@dataclass
class Table:
    """Contestants of one target, suite and batch size; those with synthetic acceptance apart."""

    title: str
    setting: str
    is_synthetic: bool
    rows: list[tuple[Facts, Mapping[str, Any]]] = field(default_factory=list)
    """A submission's facts, and an entry of its numbers."""

    @property
    def ranked(self) -> list[tuple[Facts, Mapping[str, Any]]]:
        """The rows, fastest first, plain decoding last."""
        return sorted(self.rows, key=lambda row: (row[1]["contestant"] == PLAIN, -row[1]["tokens_per_s"]))


def render(board: Sequence[Submission]) -> str:
    """Return a board as one HTML page, for light and dark, wide and narrow screens, without scripts."""
    return page_template("specdec_cli", "arena").render(
        tables=tables([submission.facts for submission in board]),
        board=board,
        columns=COLUMNS,
        status={LOSSLESS: "s0", NOT_LOSSLESS: "s1"},
        cells=cells,
        percent=_percent,
        number=_number,
        command=shlex.join,
        power=POWER,
        PLAIN=PLAIN,
        OVERALL=OVERALL,
    )


def tables(every: Sequence[Facts]) -> list[Table]:
    """Return the tables of submissions, those of one setting together, synthetic acceptance last."""
    found: dict[tuple[bool, str, str], Table] = {}
    for facts in every:
        digest = f" ({facts.target.digest})" if facts.target.digest else ""
        setting = (
            f"{len(facts.suite.numbers)} questions ({facts.suite.sha256[:12]}), at most {facts.max_tokens} tokens, temperature "
            f"{facts.temperature:g}, {facts.dtype}, on {facts.environment.cpu or 'a processor without a name'}, "
            f"{facts.environment.device}"
        )
        kinds = {contestant.name: contestant.acceptance for contestant in facts.contestants}
        has_real = "real" in kinds.values()
        for entry in facts.numbers:
            kind = kinds[entry["contestant"]]
            title = f"{facts.target.name}{digest}, {facts.suite.name}, batch size {entry['batch_size']}"
            key = (kind == "synthetic" or (kind == "none" and not has_real), title, setting)
            found.setdefault(key, Table(title, setting, key[0])).rows.append((facts, entry))
    return sorted(found.values(), key=lambda table: table.is_synthetic)


def cells(facts: Facts, entry: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of `COLUMNS` for one entry of a submission's numbers."""
    kind = next(one.acceptance for one in facts.contestants if one.name == entry["contestant"])
    ratio, overall = entry["ratio"], entry["by_category"][OVERALL]
    stamp = facts.stamps[entry["contestant"]]["verdict"] if kind == "real" else kind
    times = (entry[key] for key in ("ttft_ms", "tpot_ms", "itl_ms"))
    return (
        entry["contestant"],
        f"{entry['tokens_per_s']:.1f}",
        "-" if ratio is None else f"{ratio[0]:.2f}x",
        "-" if ratio is None else f"{ratio[1]:.2f} to {ratio[2]:.2f}",
        "-" if stamp == "none" else str(stamp),
        _percent(overall["acceptance_rate"]),
        _number(overall["tokens_per_step"]),
        _percent(entry["same_text"]),
        *("-" if each is None else " / ".join(f"{value:.3g}" for value in each) for each in times),
    )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
