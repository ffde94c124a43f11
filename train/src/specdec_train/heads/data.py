"""Training and held-out data of a head: windows of text, or conversations with a loss on answers only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from specdec_train.answers.conversations import Conversations, padded
from specdec_train.answers.record import Answered
from specdec_train.answers.state_recorder import RecordedText
from specdec_train.heads.recipe import HeadRecipe
from specdec_train.packing import PackedDocuments, micro_batches, packed_text

_MOST_HELD_OUT = 256
"""Maximum number of conversations for the final evaluation."""


@dataclass(frozen=True)
class HeadData:
    """Batches are token ids `[B, W]`, or `[B, 2, W]` with an answer mask; see `split_batch`."""

    batch_of: Callable[[int], Tensor]
    """The batch of a step."""
    heldout: Sequence[Tensor]
    """All batches of held-out text."""
    spread: Sequence[Tensor]
    """Some of them, for evaluations during training."""
    documents: Sequence[Sequence[int]]
    """Token ids of the training text."""
    guessed: Sequence[Sequence[int]]
    """The part of `documents` to predict: answers, or all."""
    num_tokens: int
    """Tokens of one epoch."""
    packed: PackedDocuments | None
    """The source of the windows if all positions count, else None."""
    recorded: Sequence[RecordedText] = ()
    """The target's states of some rows, without the padding."""


def split_batch(batch: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the tokens `[B, W]` of a batch and the mask of answer tokens, None if all count."""
    if batch.ndim == 2:
        return batch, None
    return batch[:, 0], batch[:, 1].bool()


def text_data(
    recipe: HeadRecipe, documents: Sequence[Sequence[int]], heldout: Sequence[Sequence[int]], separator: int
) -> HeadData:
    """Return text as windows with a loss on every position.

    Args:
        recipe: length and number of the windows.
        documents: token ids of each training text.
        heldout: token ids of each held-out text.
        separator: token id put in front of each text.

    Raises:
        ValueError: if there is too little text for one window.
    """
    text = packed_text(
        documents,
        heldout,
        separator=separator,
        seq_len=recipe.seq_len,
        eval_windows=recipe.eval_windows,
        seed=recipe.seed,
    )
    return HeadData(
        lambda step: text.train.batch(step, recipe.batch_size),
        list(micro_batches(text.heldout, recipe.micro_batch)),
        list(micro_batches(text.spread, recipe.micro_batch)),
        documents,
        documents,
        text.train.num_tokens,
        text.train,
    )


def answer_data(
    recipe: HeadRecipe,
    train: Sequence[Answered],
    heldout: Sequence[Answered],
    filler: int,
    recorded: Sequence[RecordedText] = (),
) -> HeadData:
    """Return conversations, one per row, with a loss on answers only.

    Args:
        recipe: the maximum length of a conversation and the tokens of a batch.
        train: conversations to train on.
        heldout: conversations to evaluate on.
        filler: padding token id.
        recorded: the target's states of conversations.

    Raises:
        ValueError: if none of them has a long enough answer.
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
        [_as_row(text, recipe.seq_len, filler) for text in recorded],
    )


def _as_row(text: RecordedText, window: int, filler: int) -> RecordedText:
    """Return a text as a row of a batch has it, without the padding."""
    count = min(len(text.ids), window)
    while count and text.ids[count - 1] == filler:
        count -= 1
    return RecordedText(text.ids[:count], tuple(part[:count] for part in text.states))
