"""Requests that end while a step with rows of theirs is launched."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain

from specdec.engine import Launched, Sequence

PromptRows = list[int]
"""How many rows of `Scores.prompt_logits` each sequence has; empty if there are none."""


def leave(step: Launched, running: Iterable[Sequence], prompt_rows: PromptRows) -> Launched | None:
    """Take the sequences that no longer run out of a step; what its pass computes of them is not read.

    Args:
        step: the step.
        running: the running sequences.
        prompt_rows: of the step.

    Returns:
        the step, None if all its sequences are gone.
    """
    scheduled, left = step.scheduled, set(running)
    gone = [index for index, sequence in enumerate(scheduled.sequences) if sequence not in left]
    if len(gone) == len(scheduled.sequences):
        return None
    for index in gone:
        scheduled.chunks[index] = scheduled.max_nodes[index] = 0
    prompt_logits = step.scores.prompt_logits
    if gone and prompt_logits is not None:
        owners = list(chain.from_iterable([index] * count for index, count in enumerate(prompt_rows)))
        rows = [row for row, index in enumerate(owners) if index not in gone]
        return step._replace(scores=replace(step.scores, prompt_logits=prompt_logits[rows]))
    return step
