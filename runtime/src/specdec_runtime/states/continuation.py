"""Checks, once when a model is loaded, that its layers continue from a kept state as if the text had been run at once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from specdec import ModelError
from specdec_runtime.backends.comparison import LEAST, distance
from specdec_runtime.interfaces.forward import PackedBatch, Segment

if TYPE_CHECKING:
    from specdec_runtime.states.request_states import RequestStates

logger = logging.getLogger("specdec")

_LEAST_ROWS = 8
_FACTOR = 4.0
"""How many times the error of rows that continue one by one several rows at once may have."""


def check_continuation(
    states: RequestStates,
    run: Callable[[PackedBatch], torch.Tensor],
    batch: PackedBatch,
    *,
    name: str,
    dtype: torch.dtype,
) -> None:
    """Choose whether a model's layers continue with several rows at once; one by one is right for more layers.

    A chunk, a draft of which a part is accepted, and the rows after it are compared with one pass over all rows.

    Args:
        states: the states of the model; nothing is kept in them.
        run: runs a pass; returns its logits.
        batch: a pass of one request, from its beginning.
        name: of the model, for messages.
        dtype: of the model; its logits may be wider.

    Raises:
        ModelError: if the logits differ either way.
    """
    num_rows = len(batch.token_ids)
    if num_rows < _LEAST_ROWS:
        states.continues_one_by_one = True
        return
    whole = run(batch)

    def error(*, is_one_by_one: bool) -> float:
        states.continues_one_by_one = is_one_by_one
        states.allocate(1, 0)
        owner = object()
        middle, start = num_rows // 2 - 2, 0
        found: list[torch.Tensor] = []
        for end, num_drafted, kept in (
            (middle, 0, middle),
            (middle + 5, 4, middle + 3),
            (num_rows, 0, num_rows),
        ):
            segment = Segment(0, end - start, 0, start, owner=owner, num_drafted=num_drafted)
            rows = slice(start, end)
            part = replace(
                batch, token_ids=batch.token_ids[rows], positions=batch.positions[rows], segments=[segment]
            )
            found.append(run(part)[: kept - start])
            start = kept
        pairs = zip(torch.cat(found)[middle:], whole[middle:], strict=True)
        # The median: experts that are chosen otherwise by rounding change single rows.
        return sorted(distance(got, expected) for got, expected in pairs)[(num_rows - middle) // 2]

    wanted = error(is_one_by_one=True)
    if not wanted <= torch.finfo(dtype).eps ** 0.5:
        raise ModelError(
            f"{name} continues from a state otherwise than in one pass (logits differ by {wanted:.1g}): a layer keeps "
            "a state that specdec does not find, and cannot roll back"
        )
    states.continues_one_by_one = not error(is_one_by_one=False) <= max(LEAST[dtype], _FACTOR * wanted)
    states.allocate(0, 0)
    if states.continues_one_by_one:
        logger.warning(
            "%s continues from a state with one row at a time, as transformers drops the state before several: prompts longer "
            "than max_num_batched_tokens, and drafts, are slow", name,
        )  # fmt: skip
