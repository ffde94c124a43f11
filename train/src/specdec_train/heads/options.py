"""The options of `specdec train`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FINETUNED = ("eagle", "eagle3")
"""Kinds of heads whose training can be continued from a published one."""


@dataclass(frozen=True)
class TrainOptions:
    """The arguments of the command.

    Args:
        method: the kind of head.
        target: directory, hub id or the name of a built-in model.
        out: folder for the result.
        work: folder for checkpoints; removed once the result is written.
        data: files of plain text, with a loss on every token.
        prompts: files of prompts that the target answers.
        answers: files of existing answers.
        num_written: number of prompts that the target writes itself.
        uses_given: whether answers in the prompt files are used as they are.
        finetuned_from: directory or hub id of a published head whose training is continued, `zoo` for the zoo's;
            empty for a new head.
        max_tokens: maximum number of tokens of an answer.
        changes: fields of `HeadRecipe` that differ from the kind's defaults.
        heldout_permille: share of texts or conversations held out, in thousandths.
        minutes: time budget of the whole run, including its earlier parts; None for no limit.
        is_resuming: whether to continue an interrupted run.
        measures: whether the head's speedup is measured at the end.
    """

    method: str
    target: str
    out: Path
    work: Path
    data: tuple[Path, ...] = ()
    prompts: tuple[Path, ...] = ()
    answers: tuple[Path, ...] = ()
    num_written: int = 0
    uses_given: bool = False
    finetuned_from: str = ""
    max_tokens: int = 320
    changes: Mapping[str, Any] = field(default_factory=dict)
    heldout_permille: int = 50
    minutes: float | None = None
    is_resuming: bool = False
    measures: bool = True

    @property
    def has_answers(self) -> bool:
        """Whether the head is trained on answers instead of plain text."""
        return bool(self.prompts or self.answers or self.num_written)

    @property
    def answers_file(self) -> Path:
        """The file to which finished answers are appended; it is kept for further heads."""
        return self.out.with_name(self.out.name + ".answers.jsonl")
