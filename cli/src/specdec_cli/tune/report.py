"""The report of a search: a table, a page, data, and the configuration."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import fill
from typing import Any

from specdec.frontend import no_drafts_message
from specdec_cli.bench.environment import environment
from specdec_cli.bench.row import make_row, more_columns
from specdec_cli.bench.shown import ratio_text
from specdec_cli.bench.table import WIDTH, print_rounding, print_summary
from specdec_cli.bench.turn import Turn
from specdec_cli.tune.choice import Choice
from specdec_cli.tune.task import TuneTask

MOST_TRIED = 8
"""Rows about candidates of earlier stages in the table for people; the page has all."""


class TuneReport:
    """What a search found, for people and programs.

    Args:
        task: the search.
        choice: what it found.
        is_interrupted: whether the user ended it.
    """

    def __init__(self, task: TuneTask, choice: Choice, *, is_interrupted: bool) -> None:
        self.choice = choice
        stage = choice.stage
        self.environment = environment(task.target, task.workload, stage.num_groups)
        self.environment |= {"bounds": "prompts", "prompts_in_file": task.num_in_file}
        if is_interrupted:
            self.environment["interrupted"] = f"stage {stage.number} of {choice.num_stages}"
        baseline = [Turn.joined(stage.turns[stage.candidates[0].name])]
        self.rows: list[dict[str, Any]] = []
        for candidate in [stage.candidates[0], *stage.ranked()]:
            turns = [Turn.joined(stage.turns[candidate.name])]
            row = make_row(
                candidate.contender,
                turns,
                baseline,
                num_prompts=len(turns[0].outputs),
                batch_size=task.workload.batch_size,
                speedup=stage.speedup(candidate),
            )
            self.rows.append(row | more_columns(row, turns))

    def data(self) -> dict[str, Any]:
        """Return the data of the JSON report."""
        return {
            "speculative_config": self.choice.config,
            "reasons": self.choice.reasons(),
            "rows": self.rows,
            "tried": [entry.as_dict() for entry in self.choice.tried],
            "left_out": [{"name": e.method, "reason": e.reason} for e in self.choice.left_out],
            "environment": self.environment,
        }

    def page(self) -> str:
        """Return the report as HTML."""
        from specdec_cli.bench.page import render  # imports Matplotlib

        return render(self.rows, [], self.environment, self.data() | {"usage": self.usage()})

    def usage(self) -> str | None:
        """Return the configuration as it is passed on a command line."""
        config = self.choice.config
        return None if config is None else f"--speculative-config '{json.dumps(config)}'"

    def print(self) -> None:
        """Print it for people."""
        print_summary(self.rows)
        print(fill(self._facts(), WIDTH))
        print_rounding(self.rows, self.environment)
        earlier = [entry for entry in self.choice.tried if entry.stage != self.choice.stage.number]
        others = sorted(earlier, key=lambda entry: entry.speedup, reverse=True)
        if others:
            print("\nin earlier stages, on fewer prompts:")
        for entry in others[:MOST_TRIED]:
            print(f"  {ratio_text(entry.speedup)}  {entry.candidate.name}")
        if len(others) > MOST_TRIED:
            print(f"  and {len(others) - MOST_TRIED} more, slower, which the page lists")
        if self.choice.left_out:
            print("\nnot tried, or not to the end:")
        reasons: dict[str, list[str]] = {}
        for left_out in self.choice.left_out:
            reasons.setdefault(left_out.reason, []).append(left_out.method)
        for reason, names in reasons.items():
            text = f"{', '.join(names)}: {reason}"
            print(fill(text, WIDTH, initial_indent="  ", subsequent_indent="    "))
        print()
        print(fill(" ".join(self.choice.reasons()), WIDTH))

    def _facts(self) -> str:
        facts, first = self.environment, self.rows[0]
        return (
            f"Last stage: {first['num_prompts']} answers, {facts['max_tokens']} tokens each at most, batch size "
            f"{first['batch_size']}, temperature {facts['temperature']:g}, {facts['dtype']} on {facts['device']}. 95 %: bounds "
            f"by resampling the prompts, of which the file has {facts['prompts_in_file']}."
        )

    def warnings(self) -> list[str]:
        """Return warnings about the numbers: configurations that drafted nothing, or whose proposers failed."""
        found = []
        for row in self.rows[1:]:
            failed = row["num_proposer_errors"]
            if not row["num_drafts"]:
                found.append(no_drafts_message(row["name"], row["method"], failed))
            elif failed:
                found.append(
                    f"{row['name']}: its proposer failed {failed} times, each at the cost of a step's drafts"
                )
        return found


def write_config(config: dict[str, Any], path: Path) -> None:
    """Write a `speculative_config` to a file that `LLM`, `specdec serve` and `specdec bench` take as it is."""
    path.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
