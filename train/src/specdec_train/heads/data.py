"""What a head is trained and measured on: windows of text, or conversations of which answers count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec_train.answers.conversations import Conversations, padded
from specdec_train.answers.record import Answered
from specdec_train.heads.recipe import HeadRecipe
from specdec_train.packing import PackedDocuments, micro_batches, windows

_MOST_HELD_OUT = 256
"""Conversations that are measured at the end, at most."""


@dataclass(frozen=True)
class HeadData:
    """Batches are token ids `[B, W]`, or `[B, 2, W]` where only answers count; see `split_batch`."""

    batch_of: Callable[[int], Tensor]
    """The batch of a step."""
    heldout: Sequence[Tensor]
    """All batches of held-out text."""
    spread: Sequence[Tensor]
    """Some of them, for a look on the way."""
    documents: Sequence[Sequence[int]]
    """Token ids of the training text."""
    guessed: Sequence[Sequence[int]]
    """Those that are to be guessed: answers, or all."""
    num_tokens: int
    """Tokens of one epoch."""
    packed: PackedDocuments | None
    """Where the windows are from, if all positions count."""


def split_batch(batch: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the tokens `[B, W]` of a batch, and which of them are of answers, None for all."""
    if batch.ndim == 2:
        return batch, None
    return batch[:, 0], batch[:, 1].bool()


def text_data(
    recipe: HeadRecipe, documents: Sequence[Sequence[int]], heldout: Sequence[Sequence[int]], separator: int
) -> HeadData:
    """Return text as windows in which every position counts.

    Args:
        recipe: length and number of the windows.
        documents: token ids of each training text.
        heldout: token ids of each held-out text.
        separator: token id put in front of each text.

    Raises:
        ValueError: if there is too little text for one window.
    """
    packed = PackedDocuments(documents, separator=separator, window=recipe.seq_len + 1, seed=recipe.seed)
    seen = windows(heldout, separator=separator, window=recipe.seq_len + 1)
    spread = seen[torch.linspace(0, len(seen) - 1, min(recipe.eval_windows, len(seen))).long()]
    return HeadData(
        lambda step: packed.batch(step, recipe.batch_size),
        list(micro_batches(seen, recipe.micro_batch)),
        list(micro_batches(spread, recipe.micro_batch)),
        documents,
        documents,
        packed.num_tokens,
        packed,
    )


def answer_data(
    recipe: HeadRecipe, train: Sequence[Answered], heldout: Sequence[Answered], filler: int
) -> HeadData:
    """Return conversations, one a row, in which the answers count.

    Args:
        recipe: the longest conversation and tokens of a batch.
        train: conversations to learn from.
        heldout: conversations to measure on.
        filler: token id behind the end of shorter ones.

    Raises:
        ValueError: if none of them has an answer of some length.
    """
    data = Conversations(
        train,
        window=recipe.seq_len,
        tokens_per_batch=recipe.tokens_per_step,
        margin=recipe.num_steps,
        filler=filler,
        seed=recipe.seed,
    )
    kept = [answered for answered in heldout if answered.num_learnt(recipe.seq_len) > 0][:_MOST_HELD_OUT]
    if not kept:
        raise ValueError("no held-out conversation has an answer to measure on: give more prompts")
    seen = [padded([answered], recipe.seq_len, recipe.num_steps, filler) for answered in kept]
    return HeadData(
        data.batch,
        seen,
        seen[: recipe.eval_windows],
        [answered.ids for answered in train],
        [answered.answer for answered in train],
        data.num_tokens,
        None,
    )
