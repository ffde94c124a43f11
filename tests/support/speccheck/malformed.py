"""What a proposer may return or raise that is no good draft."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from specdec.interfaces import Draft, ProposeBatch

HUGE = 2**62


Malform = Callable[[Draft, ProposeBatch, int], object]


def _rows(draft: Draft) -> list[list[int]]:
    return [list(row) for row in draft.rows]


def _tail(draft: Draft, token: Any) -> Draft:
    """Append an id to every row."""
    rows = [[*row, token] for row in _rows(draft)]
    width = max(map(len, rows))
    ids = torch.full((len(rows), width), -1, dtype=torch.int64)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = torch.tensor(row)
    return Draft(token_ids=ids)


class _Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("cannot even be printed")


def _unprintable(draft: Draft, batch: ProposeBatch, vocab: int) -> object:
    raise _Unprintable


def _raises_caps(draft: Draft, batch: ProposeBatch, vocab: int) -> object:
    """Try to lift the caps of the batch, then return long rows."""
    if isinstance(batch.max_nodes, list):
        batch.max_nodes[:] = [50] * batch.batch_size
    return Draft.from_lists([[1] * 40 for _ in range(batch.batch_size)])


def _writes(draft: Draft, batch: ProposeBatch, vocab: int) -> object:
    """Try to write into the engine's tokens."""
    for row in range(batch.batch_size):
        view = batch.token_ids(row)
        if view.size:
            view[0] = (view[0] + 1) % vocab
    return draft


MALFORMED: dict[str, Malform] = {
    "none": lambda draft, batch, vocab: None,
    "text": lambda draft, batch, vocab: "a draft",
    "lists": lambda draft, batch, vocab: _rows(draft),
    "above vocabulary": lambda draft, batch, vocab: _tail(draft, vocab),
    "negative": lambda draft, batch, vocab: _tail(draft, -7),
    "huge id": lambda draft, batch, vocab: _tail(draft, HUGE),
    "padding inside": lambda draft, batch, vocab: Draft.from_lists([[-1, *row] for row in _rows(draft)]),
    "too long": lambda draft, batch, vocab: Draft.from_lists([row + [1] * 300 for row in _rows(draft)]),
    "too few rows": lambda draft, batch, vocab: Draft.from_lists(_rows(draft)[:-1]),
    "too many rows": lambda draft, batch, vocab: Draft.from_lists([*_rows(draft), [1]]),
    "one dimension": lambda draft, batch, vocab: Draft(token_ids=torch.zeros(3, dtype=torch.int64)),
    "three dimensions": lambda draft, batch, vocab: Draft(token_ids=torch.zeros((batch.batch_size, 2, 2))),
    "token ids none": lambda draft, batch, vocab: Draft(token_ids=None),  # type: ignore[arg-type]
    "nan ids": lambda draft, batch, vocab: Draft(token_ids=torch.full((batch.batch_size, 3), float("nan"))),
    "fractional ids": lambda draft, batch, vocab: Draft(token_ids=torch.full((batch.batch_size, 3), 1.5)),
    "parent after child": lambda draft, batch, vocab: Draft.from_lists(
        [[1, 2, 3]] * batch.batch_size, [[-1, 2, 1]] * batch.batch_size
    ),
    "own parent": lambda draft, batch, vocab: Draft.from_lists(
        [[1, 2]] * batch.batch_size, [[0, 1]] * batch.batch_size
    ),
    "parent below -1": lambda draft, batch, vocab: Draft.from_lists(
        [[1, 2]] * batch.batch_size, [[-1, -9]] * batch.batch_size
    ),
    "parents of other width": lambda draft, batch, vocab: Draft(
        token_ids=torch.ones((batch.batch_size, 3), dtype=torch.int64),
        parents=torch.full((batch.batch_size, 2), -1, dtype=torch.int64),
    ),
    "parents nan": lambda draft, batch, vocab: Draft(
        token_ids=torch.ones((batch.batch_size, 3), dtype=torch.int64),
        parents=torch.full((batch.batch_size, 3), float("nan")),
    ),
    "parents of floats": lambda draft, batch, vocab: Draft(
        token_ids=torch.ones((batch.batch_size, 3), dtype=torch.int64),
        parents=torch.tensor([[-1.0, 0.0, 1.0]]).expand(batch.batch_size, 3),
    ),
    "parents as list": lambda draft, batch, vocab: Draft(
        token_ids=torch.ones((batch.batch_size, 3), dtype=torch.int64),
        parents=[[-1, 0, 1]] * batch.batch_size,  # type: ignore[arg-type]
    ),
    "nan q": lambda draft, batch, vocab: replace(
        draft, node_probs=torch.full((batch.batch_size, draft.token_ids.shape[1] + 1, vocab), float("nan"))
    ),
    "q of wrong shape": lambda draft, batch, vocab: replace(draft, node_probs=torch.ones(0, 2)),
    "q as list": lambda draft, batch, vocab: replace(draft, node_probs=[[0.5]]),  # type: ignore[arg-type]
    "has_probs of wrong shape": lambda draft, batch, vocab: replace(draft, has_probs=torch.ones(0)),
    "confidence of wrong shape": lambda draft, batch, vocab: replace(draft, confidence=torch.ones(0, 1)),
    "confidence nan": lambda draft, batch, vocab: replace(
        draft, confidence=torch.full(draft.token_ids.shape, float("nan"))
    ),
    "unprintable error": _unprintable,
    "lifted caps": _raises_caps,
    "writes": _writes,
}
"""Things a proposer may do wrong; each returns something or raises."""
