"""Output of `specdec demo`: a table, the methods left out, and an answer with the accepted drafts in colour."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

from rich.console import Console

from specdec import LLM
from specdec_cli import loading
from specdec_cli.bench.candidates import missing_distributions
from specdec_cli.bench.shown import speed_cells
from specdec_cli.bench.table import WIDE, WIDTH, new_table, yes_or_no
from specdec_cli.text.highlight import GUESSED, PLAIN, GrowingText, paint, supports_color

if TYPE_CHECKING:
    from specdec import RequestOutput
    from specdec_cli.bench import Contender, Workload
    from specdec_cli.bench.candidates import LeftOut
    from specdec_runtime.loading import LoadedTarget

DIM = "\x1b[2m"
PROMPT_LINES = 16
"""Number of lines from the end of a prompt that are shown before the answer."""


def print_demo(
    rows: Sequence[dict[str, Any]], left_out: Sequence[LeftOut], environment: dict[str, Any]
) -> None:
    """Print the table and the settings of the run.

    Args:
        rows: rows of `specdec bench` for all temperatures, each with its temperature.
        left_out: methods that cannot run, with the reasons.
        environment: environment of the run.
    """
    _print_table(rows)
    first = rows[0]
    counts = [_counted(first["num_prompts"], "prompt"), _counted(environment["rounds"], "round")]
    print(
        f"\n{counts[0]}, {environment['max_tokens']} tokens each at most, {counts[1]}, {environment['dtype']} on "
        f"{environment['device']}. Times are medians.\n"
        "Accepted: mean acceptance length, tokens per verified draft. Identical: token for token what plain\n"
        "decoding gives, sampled or not. 4-grams: distinct over all; low where text loops, which is easy to guess."
    )
    for entry in left_out:
        if not entry.is_unfit:
            print(f"left out: {entry.method}: {entry.reason}")
    unfit = [entry.method for entry in left_out if entry.is_unfit]
    if unfit:
        print(fill(f"not for this model, as --json tells of each: {', '.join(unfit)}", WIDTH))
    missing = missing_distributions()
    if missing:
        print(f"more methods: pip install {' '.join(missing)}")


def print_answer(
    target: LoadedTarget, contender: Contender, workload: Workload, prompt: str, *, is_compiled: bool
) -> None:
    """Show the first prompt and stream a method's answer, with accepted drafts in colour.

    Args:
        target: the loaded model.
        contender: the method.
        workload: the workload whose first prompt is answered.
        prompt: that prompt without a chat template.
        is_compiled: whether code has been compiled for this machine before; else the answer does without, as compiling takes
            longer than anybody waits for a first word.
    """
    if target.tokenizer is None:
        return
    is_coloured = supports_color()
    asked = "\n".join(prompt.split("\n")[-PROMPT_LINES:])
    is_chat = target.tokenizer.chat_template is not None
    print(f"\nThe first question:\n\n{DIM if is_coloured else ''}{asked}{PLAIN if is_coloured else ''}")
    print(f"\n{contender.name} {'answers' if is_chat else 'continues'}:\n")
    if not is_compiled:
        print(
            "(slowly: nothing has been compiled for this machine yet, which the measurements do)\n",
            flush=True,
        )
    with loading(contender.name):
        llm = LLM(
            target,
            speculative_config=contender.config,
            max_model_len=target.max_model_len,
            max_num_seqs=1,
            deterministic=workload.is_deterministic and is_compiled,
            enforce_eager=not is_compiled,
        )
    growing = GrowingText(target.tokenizer, list(workload.prompts[0]))
    last: RequestOutput | None = None
    for last in llm.stream({"prompt_token_ids": list(workload.prompts[0])}, workload.params(0)):
        for span in growing.update(last.outputs[0]):
            sys.stdout.write(paint(span, is_coloured=is_coloured))
        sys.stdout.flush()
    assert last is not None
    guessed, count = sum(last.outputs[0].is_from_draft), len(last.outputs[0].token_ids)
    green = f"{GUESSED}in green{PLAIN}" if is_coloured else "in green on a terminal"
    print(f"\n\n{guessed} of {count} tokens were guessed by a draft ({green}).\n", flush=True)
    llm.shutdown()


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count > 1 else ''}"


def _print_table(rows: Sequence[dict[str, Any]]) -> None:
    headings = ("method", "temperature", "tokens/s", "speed-up", "95 %", "accepted", "identical", "4-grams")
    table = new_table(*headings)
    plain = rows[0]
    for row in rows:
        if row["temperature"] != plain["temperature"]:
            table.add_row()
            plain = row
        table.add_row(
            row["name"],
            f"{row['temperature']:g}",
            *speed_cells(row, plain),
            f"{row['mean_acceptance_length']:.2f}",
            yes_or_no(row["identical_to_baseline"]),
            f"{row['distinct_4gram_ratio']:.2f}",
        )
    Console(file=sys.stdout, width=WIDE, highlight=False).print(table)
