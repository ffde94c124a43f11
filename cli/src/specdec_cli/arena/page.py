"""The page of a board."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from specdec_cli.arena.numbers import OVERALL
from specdec_cli.arena.stamp import LOSSLESS, NOT_LOSSLESS
from specdec_cli.arena.submission import PLAIN, Contestant, Facts, Submission
from specdec_cli.audit.chi_square import POWER

COLUMNS = (
    *("contestant", "tokens/s", "to plain", "bounds", "TTFT, ms", "TPOT, ms", "ITL, ms"),
    *("accepted", "tokens a step", "same text", "stamp"),
)
"""Times are percentiles 50, 95 and 99."""


@dataclass(frozen=True)
class Table:
    """Contestants of one target, suite and batch size; those with synthetic acceptance apart."""

    title: str
    setting: str
    is_synthetic: bool
    rows: Sequence[tuple[Facts, Mapping[str, Any]]]

    @property
    def cells(self) -> list[tuple[str, ...]]:
        """The cells of each row, fastest first, plain decoding last."""
        ordered = sorted(self.rows, key=lambda row: (row[1]["contestant"] == PLAIN, -row[1]["tokens_per_s"]))
        return [cells(facts, entry) for facts, entry in ordered]

    @property
    def categories(self) -> list[str]:
        """The categories of the suite."""
        names = dict.fromkeys(name for _, entry in self.rows for name in entry["by_category"])
        return [name for name in names if name != OVERALL]

    @property
    def by_category(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """For each contestant that drafts the shares of accepted tokens, and tokens per step, by category."""
        return [
            (
                entry["contestant"],
                [
                    (
                        _percent(entry["by_category"].get(name, {}).get("acceptance_rate")),
                        _number(entry["by_category"].get(name, {}).get("tokens_per_step"), 2),
                    )
                    for name in self.categories
                ],
            )
            for _, entry in self.rows
            if entry["contestant"] != PLAIN
        ]


def render(board: Sequence[Submission]) -> str:
    """Return a board as one HTML page, for light and dark, wide and narrow screens, without scripts."""
    pages = Environment(
        loader=PackageLoader("specdec_cli", "arena"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    facts = [submission.facts for submission in board]
    return pages.get_template("page.html.jinja").render(
        tables=tables(facts),
        columns=COLUMNS,
        submissions=[
            (each, shlex.join(each.environment.get("command", ())), _stamp_lines(each)) for each in facts
        ],
        folders=[submission.folder.name for submission in board],
        status={LOSSLESS: "s0", NOT_LOSSLESS: "s1"},
    )


def tables(every: Sequence[Facts]) -> list[Table]:
    """Return the tables of submissions, those of one setting together."""
    found: dict[tuple[bool, str, str], list[tuple[Facts, Mapping[str, Any]]]] = {}
    for facts in every:
        digest = f" ({facts.target.digest})" if facts.target.digest else ""
        kinds = {contestant.name: contestant.acceptance for contestant in facts.contestants}
        setting = (
            f"{len(facts.suite.numbers)} questions ({facts.suite.sha256[:12]}), at most {facts.max_tokens} tokens, temperature "
            f"{facts.temperature:g}, {facts.dtype}, on {facts.environment.get('cpu') or 'a processor without a name'}, "
            f"{facts.environment.get('device')}"
        )
        for entry in facts.numbers:
            kind = kinds[entry["contestant"]]
            title = f"{facts.target.name}{digest}, {facts.suite.name}, batch size {entry['batch_size']}"
            has_real = any(one == "real" for one in kinds.values())
            is_synthetic = kind == "synthetic" or (kind == "none" and not has_real)
            found.setdefault((is_synthetic, title, setting), []).append((facts, entry))
    return [
        Table(title, setting, is_synthetic, rows)
        for (is_synthetic, title, setting), rows in sorted(found.items(), key=lambda item: item[0][0])
    ]


def cells(facts: Facts, entry: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of `COLUMNS` for one entry of a submission's numbers."""
    contestant = next(one for one in facts.contestants if one.name == entry["contestant"])
    ratio, overall = entry["ratio"], entry["by_category"][OVERALL]
    return (
        contestant.name,
        f"{entry['tokens_per_s']:.1f}",
        "-" if ratio is None else f"{ratio[0]:.2f}x",
        "-" if ratio is None else f"{ratio[1]:.2f} to {ratio[2]:.2f}",
        *(_times(entry[key]) for key in ("ttft_ms", "tpot_ms", "itl_ms")),
        _percent(overall["acceptance_rate"]),
        _number(overall["tokens_per_step"], 2),
        "-" if entry["same_text"] is None else f"{100 * entry['same_text']:.0f} %",
        _stamp(facts, contestant),
    )


def _stamp(facts: Facts, contestant: Contestant) -> str:
    if contestant.acceptance == "real":
        return str(facts.stamps[contestant.name]["verdict"])
    return "-" if contestant.acceptance == "none" else contestant.acceptance


def _stamp_lines(facts: Facts) -> list[str]:
    """Return what the stamps say, a sentence or two each."""
    lines = []
    for name, stamp in facts.stamps.items():
        line = f"{name}: {stamp['verdict']}{': ' + stamp['why'] if stamp['why'] else ''}."
        if greedy := stamp.get("greedy"):
            first = greedy["first"]
            gap = (
                "" if first is None or first["gap_nats"] is None else f", {first['gap_nats']:.4g} nats apart"
            )
            line += f" Temperature 0: {greedy['equal']} of {greedy['prompts']} answers equal ({greedy['tokens']} tokens)"
            line += f"; first divergence at token {first['token'] + 1}{gap}." if first else ", no divergence."
        if sampled := stamp.get("sampled"):
            line += (
                f" Temperature {sampled['temperature']:g}: p = {sampled['p_value']:.2g} over {sampled['prompts']} prompts of "
                f"{sampled['samples']} samples; a mean total variation of {sampled['detectable']:.2f} would have been found "
                f"with probability {POWER:g}."
            )
        lines.append(line)
    return lines


def _times(values: Sequence[float] | None) -> str:
    return "-" if values is None else " / ".join(f"{value:.3g}" for value in values)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
