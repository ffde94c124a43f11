"""A report as one page: plain text or self-contained HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specdec_cli import table_lines
from specdec_cli.audit.chi_square import POWER
from specdec_cli.audit.divergence import Kind
from specdec_cli.audit.drafting import Drafting
from specdec_cli.audit.greedy import ALONE, TOGETHER, GreedyResult
from specdec_cli.audit.report import Report, SideReport, Verdict
from specdec_cli.audit.sampled import SampledResult
from specdec_cli.page_template import page_template

MOST_DIVERGENCES = 12
VERDICTS = {
    Verdict.LOSSLESS: "lossless",
    Verdict.NOT_LOSSLESS: "NOT LOSSLESS",
    Verdict.COULD_NOT_TELL: "could not tell",
}


@dataclass(frozen=True)
class Table:
    """A table with a title and a note."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str


def tables(report: Report) -> list[Table]:
    """Return the page's tables, in order."""
    found = [_servers(report), _comparisons(report.greedy)]
    if any(comparison.divergences for comparison in report.greedy.comparisons):
        found.append(_divergences(report.greedy))
    if report.sampled is not None:
        found.append(_positions(report.sampled))
    return found


def text(report: Report) -> str:
    """Return a report as plain text."""
    lines = [f"{VERDICTS[report.verdict]}: {report.summary[0]}", *report.summary[1:]]
    for table in tables(report):
        lines += ["", table.title, *(f"  {line}" for line in table_lines(table.columns, table.rows))]
        if table.note:
            lines.append(f"  {table.note}")
    return "\n".join(lines)


def page(report: Report) -> str:
    """Return a report as HTML."""
    return page_template("specdec_cli", "audit").render(
        report=report, verdict=VERDICTS[report.verdict], status=int(report.verdict), tables=tables(report)
    )


def _servers(report: Report) -> Table:
    columns = (
        "asked",
        "at",
        "model",
        "drafted at 0",
        "accepted",
        "drafted above",
        "accepted",
        "mean acceptance length",
    )
    rows = [_server(side) for side in (report.with_drafts, report.without)]
    return Table("Servers", columns, rows, "")


def _server(side: SideReport) -> list[str]:
    fields = f" {dict(side.fields)}" if side.fields else ""
    both = [drafting for drafting in (side.drafting_greedy, side.drafting_sampled) if drafting is not None]
    total = sum(both, Drafting(0, 0, 0)) if both else None
    length = None if total is None else total.mean_acceptance_length
    return [
        side.name + fields,
        side.url,
        side.model,
        *_drafted(side.drafting_greedy),
        *_drafted(side.drafting_sampled),
        "-" if length is None else f"{length:.2f}",
    ]


def _drafted(drafting: Drafting | None) -> tuple[str, str]:
    if drafting is None:
        return "not told", "-"
    rate = drafting.acceptance_rate
    return str(drafting.num_draft_tokens), "-" if rate is None else f"{100 * rate:.1f} %"


def _comparisons(greedy: GreedyResult) -> Table:
    rows = [
        [
            comparison.name,
            f"{comparison.num_equal} of {greedy.num_prompts}",
            *(
                str(comparison.count(kind, greedy.tolerance))
                for kind in (Kind.NEAR_TIE, Kind.WRONG_TOKEN, Kind.UNKNOWN)
            ),
        ]
        for comparison in greedy.comparisons
    ]
    note = (
        f"A near-tie: log probabilities at most {greedy.tolerance:.3g} apart. By default that is four times what rounding was "
        "seen to do at nine of ten positions where answers agree, between 0.001 and 0.5."
    )
    title = f"Temperature 0: first divergences in {greedy.num_prompts} answers of {greedy.max_tokens} tokens"
    return Table(title, ("runs", "equal", "near-ties", "wrong tokens", "unknown"), rows, note)


def _divergences(greedy: GreedyResult) -> Table:
    tolerance = greedy.tolerance
    ordered = sorted(
        ((comparison.name, found) for comparison in greedy.comparisons for found in comparison.divergences),
        key=lambda entry: (entry[1].kind(tolerance) is Kind.NEAR_TIE, entry[0] not in (ALONE, TOGETHER)),
    )
    rows = [
        [
            name,
            str(found.prompt + 1),
            str(found.place + 1),
            repr(found.expected),
            repr(found.got),
            "-" if found.gap is None else f"{'over ' if found.is_least else ''}{found.gap:.4g}",
            found.kind(tolerance).value,
        ]
        for name, found in ordered[:MOST_DIVERGENCES]
    ]
    left = len(ordered) - len(rows)
    columns = ("runs", "prompt", "token", "expected", "got", "gap", "kind")
    return Table("First divergences", columns, rows, f"and {left} more: --json has all" if left else "")


def _positions(sampled: SampledResult) -> Table:
    rows = [
        [
            str(position.place + 1),
            f"{position.statistic:.1f}",
            str(position.num_freedom),
            f"{position.p_value:.3g}",
            f"{position.variation:.3f}",
            f"{position.detectable:.3f}",
        ]
        for position in sampled.positions
    ]
    fields = f" {dict(sampled.fields)}" if sampled.fields else ""
    title = (
        f"Temperature {sampled.temperature:g}{fields}: {sampled.num_samples} samples of each of {sampled.num_prompts} prompts, "
        "with and without"
    )
    note = (
        f"p = {sampled.p_value:.3g} over all positions; below {sampled.false_alarm_rate:g} distributions are called different, "
        "which happens to equal ones with at most that probability. variation: between the samples, noise included, mean "
        f"over prompts. would find: that of the distributions which is found with probability {POWER:g}. Tokens "
        "that are rare in both are counted as one."
    )
    columns = ("position", "chi-square", "degrees", "p", "variation", "would find")
    return Table(title, columns, rows, note)
