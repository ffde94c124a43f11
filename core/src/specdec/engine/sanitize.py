"""Cuts from a draft what cannot be scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from specdec.interfaces.draft import PADDING_ID, Draft


class DraftError(ValueError):
    """A draft that is no draft of its batch, or a malformed one under `strict_drafts=True`."""


def check_draft(
    draft: object, max_nodes: Sequence[int], max_depth: Sequence[int], vocab_size: int
) -> tuple[Draft, int]:
    """Return the part of a draft that can be scored, with `host_rows` set to it, and how many nodes were cut off.

    A row is cut before its first node that has an id outside the vocabulary, a parent that does not precede it, or a depth
    above the cap: any prefix of a row is a valid draft.

    Raises:
        DraftError: if it is no draft of this batch at all.
    """
    if not isinstance(draft, Draft):
        raise DraftError(f"propose returned {type(draft).__name__}, not a Draft")
    size = len(max_nodes)
    _check_shapes(draft, size)
    offered: Sequence[Sequence[int]] = (
        draft.token_ids.tolist() if draft.host_rows is None else draft.host_rows
    )
    if len(offered) != size:
        raise DraftError(f"Draft.host_rows has {len(offered)} rows for a batch of {size}")
    parents = None if draft.parents is None else draft.parents.tolist()
    kept: list[tuple[int, ...]] = []
    num_cut = 0
    for index, row in enumerate(offered):
        length = len(row)
        while length and row[length - 1] == PADDING_ID:
            length -= 1
        valid = _valid_length(row, min(length, max_nodes[index]), vocab_size)
        if parents is None:
            valid = min(valid, max_depth[index])
        else:
            valid = _valid_tree_length(parents[index], valid, max_depth[index])
        num_cut += length - valid
        kept.append(tuple(row[:valid]))
    return replace(draft, host_rows=tuple(kept)), num_cut


def _check_shapes(draft: Draft, size: int) -> None:
    """Raise unless every tensor of a draft belongs to a batch of `size` rows."""
    ids: object = draft.token_ids  # a plugin may have put anything there
    width = ids.shape[-1] if isinstance(ids, torch.Tensor) and ids.ndim else 0
    rows = (size, width)
    wanted: dict[str, tuple[int | None, ...]] = {
        "token_ids": rows, "parents": rows, "confidence": rows, "has_probs": (size,), "vocab_map": (None,),
        "node_probs": (size, width + 1, None),
    }  # fmt: skip
    for name, shape in wanted.items():
        value = getattr(draft, name)
        if value is None and name != "token_ids":
            continue
        if not isinstance(value, torch.Tensor):
            raise DraftError(f"Draft.{name} is {type(value).__name__}, not a tensor")
        if value.ndim != len(shape) or any(
            b not in (None, a) for a, b in zip(value.shape, shape, strict=True)
        ):
            raise DraftError(
                f"Draft.{name} has shape {tuple(value.shape)} for a batch of {size} rows of {width} nodes"
            )


def select_rows(draft: Draft, indices: Sequence[int]) -> Draft:
    """Return only some rows of a checked draft."""
    assert draft.host_rows is not None
    if len(indices) == len(draft.host_rows):
        return draft
    index = torch.tensor(indices, dtype=torch.int64, device=draft.token_ids.device)
    return Draft(
        token_ids=draft.token_ids[index],
        parents=None if draft.parents is None else draft.parents[index],
        sampling=draft.sampling,
        node_probs=None if draft.node_probs is None else draft.node_probs[index],
        has_probs=None if draft.has_probs is None else draft.has_probs[index],
        vocab_map=draft.vocab_map,
        confidence=None if draft.confidence is None else draft.confidence[index],
        host_rows=tuple(draft.host_rows[i] for i in indices),
    )


def _valid_length(row: Sequence[int], limit: int, vocab_size: int) -> int:
    for node in range(limit):
        if not 0 <= row[node] < vocab_size:
            return node
    return limit


def _valid_tree_length(parents: Sequence[int], limit: int, max_depth: int) -> int:
    depths: list[int] = []
    for node in range(limit):
        parent = parents[node]
        if not -1 <= parent < node:
            return node
        depth = 1 if parent < 0 else depths[parent] + 1
        if depth > max_depth:
            return node
        depths.append(depth)
    return limit
