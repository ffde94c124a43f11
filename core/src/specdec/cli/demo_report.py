"""What `specdec demo` shows: a table, what was left out, and a text with the accepted drafts in colour."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from specdec.bench.candidates import missing_distributions
from specdec.cli.bench.table import new_table, print_wide, yes_or_no
from specdec.cli.highlight import GUESSED, PLAIN, paint, pieces_of, takes_colour

if TYPE_CHECKING:
    from specdec.bench import Comparison
    from specdec.bench.candidates import LeftOut
    from specdec.loading.target import LoadedTarget
    from specdec.outputs import RequestOutput

DIM = "\x1b[2m"
PROMPT_LINES = 8
"""How much of the end of a prompt is shown before its text."""


def print_demo(
    rows: Sequence[dict[str, Any]],
    left_out: Sequence[LeftOut],
    sampled: Comparison,
    target: LoadedTarget,
    environment: dict[str, Any],
) -> None:
    """Print everything.

    Args:
        rows: of all temperatures, each a row of `specdec bench` with its temperature.
        left_out: methods that cannot run, and why.
        sampled: the comparison whose text is shown; its rows come first.
        target: for its tokenizer.
        environment: of the run.
    """
    _print_table(rows)
    first = rows[0]
    print(
        f"\n{first['num_prompts']} held-out prompts, {environment['max_tokens']} tokens each at most, "
        f"{environment['rounds']} rounds, {environment['dtype']} on {environment['device']}. Times are medians.\n"
        "Accepted: mean acceptance length, tokens per verified draft. Identical: token for token what plain\n"
        "decoding gives, sampled or not. 4-grams: distinct over all; low where text loops, which is easy to guess."
    )
    for entry in left_out:
        print(f"left out: {entry.method}: {entry.reason}")
    missing = missing_distributions()
    if missing:
        print(f"more methods: pip install {' '.join(missing)}")
    _print_sample(rows, sampled, target)


def _print_table(rows: Sequence[dict[str, Any]]) -> None:
    headings = ("method", "temperature", "tokens/s", "speed-up", "95 %", "accepted", "identical", "4-grams")
    table = new_table(*headings)
    before = None
    for row in rows:
        if before is not None and row["temperature"] != before:
            table.add_row()
        before = row["temperature"]
        table.add_row(
            row["name"],
            f"{row['temperature']:g}",
            f"{row['tokens_per_s']:.0f}",
            f"{row['speedup']:.2f}x",
            f"{row['speedup_low']:.2f}-{row['speedup_high']:.2f}",
            f"{row['mean_acceptance_length']:.2f}",
            yes_or_no(row["identical_to_baseline"]),
            f"{row['distinct_4gram_ratio']:.2f}",
        )
    print_wide(table)


def _print_sample(rows: Sequence[dict[str, Any]], sampled: Comparison, target: LoadedTarget) -> None:
    """Print the text of which the most was guessed, its accepted drafts in colour."""
    if len(sampled.rounds[0]) < 2 or target.tokenizer is None:
        return
    outputs = [
        (row, output)
        for row, turn in list(zip(rows, sampled.rounds[0], strict=False))[1:]
        for output in turn.outputs
    ]
    row, output = max(outputs, key=lambda pair: _share_guessed(pair[1]))
    whole = str(target.tokenizer.decode(output.prompt_token_ids, skip_special_tokens=True))
    prompt = "\n".join(whole.split("\n")[-PROMPT_LINES:])
    pieces = pieces_of(target.tokenizer, output.prompt_token_ids, output.outputs[0])
    is_coloured = takes_colour()
    guessed = sum(output.outputs[0].is_from_draft)
    green = f"{GUESSED}in green{PLAIN}" if is_coloured else "in green on a terminal"
    print(
        f"\n{row['name']} at temperature {row['temperature']:g}: {guessed} of "
        f"{len(output.outputs[0].token_ids)} tokens were guessed by a draft ({green}).\n"
    )
    sys.stdout.write(f"{DIM}{prompt}{PLAIN}" if is_coloured else prompt)
    sys.stdout.write("".join(paint(piece, is_coloured=is_coloured) for piece in pieces) + "\n")


def _share_guessed(output: RequestOutput) -> float:
    flags = output.outputs[0].is_from_draft
    return sum(flags) / len(flags)
