"""Removes the parts of a draft that cannot be scored or verified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import index as as_int

import numpy as np
import torch

from specdec.interfaces.draft import PADDING_ID, Draft, DraftSampling

_SUM_TOLERANCE = 1e-3
_EXACT_SUM_TOLERANCE = 1e-5  # beyond it q is normalised: a token drawn by weights follows their shares
_HALF_SUM_TOLERANCE = 4e-3  # the error of rounding to bfloat16 alone
_STAND_IN = 0


class DraftError(ValueError):
    """A draft that does not belong to its batch, or a malformed one under `strict_drafts=True`."""


def check_draft(
    draft: object,
    max_nodes: Sequence[int],
    vocab_size: int,
    *,
    takes_trees: bool = True,
) -> tuple[Draft, int]:
    """Return the usable part of a draft, with `host_rows` set to it, and the number of unfit nodes.

    A row without q is cut at its cap, and before its first node with an id outside the vocabulary or a parent
    that does not precede it: any prefix of a row is a valid draft. Without `takes_trees` a row is cut before
    its first node that is not its predecessor's child; the result is a chain.

    In a row with q, the presence of a node must not depend on the token drawn for it, or acceptance no longer
    follows from p and q. An id outside the vocabulary therefore stays: `token_ids` keeps it, and it is
    rejected with its q; `host_rows` has a valid id in its place, which is scored. If a row of q is not a
    distribution (not finite, negative, not summing to 1), the draft's row is cut before the first node drawn
    from it. This cut depends only on nodes before it, and so does a cut by parents.

    Raises:
        DraftError: if it does not belong to this batch at all.
    """
    if not isinstance(draft, Draft):
        raise DraftError(f"propose returned {type(draft).__name__}, not a Draft")
    size = len(max_nodes)
    _check_shapes(draft, size)
    _check_proposers(draft.proposers, size)
    is_drawn = _drawn_rows(draft, size)
    if draft.node_probs is not None and not any(is_drawn):
        draft = replace(draft, node_probs=None, has_probs=None)
    offered: Sequence[Sequence[int]] = (
        draft.token_ids.tolist() if draft.host_rows is None or any(is_drawn) else draft.host_rows
    )
    if len(offered) != size:
        raise DraftError(f"Draft.host_rows has {len(offered)} rows for a batch of {size}")
    width = draft.token_ids.shape[1]
    if any(len(row) > width for row in offered):
        raise DraftError(f"Draft.host_rows has a row longer than the {width} nodes of Draft.token_ids")
    parents: list[list[int]] | None = None if draft.parents is None else draft.parents.tolist()
    is_law = None
    if any(is_drawn):
        draft, is_law = _with_lawful_rows(draft)
    kept: list[tuple[int, ...]] = []
    num_unfit = 0
    for index, row in enumerate(offered):
        length = len(row)
        while length and row[length - 1] == PADDING_ID:
            length -= 1
        links = None if parents is None else parents[index]
        valid = min(length, max_nodes[index])
        if not is_drawn[index]:
            valid = _valid_length(row, valid, vocab_size)
        if links is not None:
            valid = _valid_tree_length(links, valid) if takes_trees else _chain_length(links, valid)
        scored = tuple(map(as_int, row[:valid]))
        if is_law is not None and is_drawn[index]:
            valid = _lawful_length(is_law[index], links, valid)
            scored = tuple(token if 0 <= token < vocab_size else _STAND_IN for token in row[:valid])
            num_unfit += sum(not 0 <= token < vocab_size for token in row[:valid])
        num_unfit += length - valid
        kept.append(scored)
    if not takes_trees and parents is not None:
        draft = replace(draft, parents=None)
    return replace(draft, host_rows=tuple(kept)), num_unfit


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
        if name in ("token_ids", "parents") and value.dtype != torch.int64:
            raise DraftError(f"Draft.{name} is {value.dtype}, not int64")


def _check_proposers(proposers: object, size: int) -> None:
    """Raise unless these are names of proposers for `size` rows."""
    if proposers is None:
        return
    if not isinstance(proposers, tuple) or len(proposers) != size:
        raise DraftError(f"Draft.proposers is {proposers!r}, not a tuple of {size} names")


def _drawn_rows(draft: Draft, size: int) -> list[bool]:
    """Return for each row whether it carries q.

    Raises:
        DraftError: if q is given and other fields contradict it.
    """
    probs = draft.node_probs
    if probs is None:
        return [False] * size
    if draft.has_probs is not None and draft.has_probs.dtype != torch.bool:
        raise DraftError(f"Draft.has_probs is {draft.has_probs.dtype}, not bool")
    is_drawn: list[bool] = [True] * size if draft.has_probs is None else draft.has_probs.tolist()
    if not any(is_drawn):
        return is_drawn
    if draft.sampling not in (DraftSampling.IID, DraftSampling.WITHOUT_REPLACEMENT):
        raise DraftError(
            f"Draft.node_probs is given but Draft.sampling is {draft.sampling}, by which nothing was drawn: give "
            "DraftSampling.IID (for chains too) or WITHOUT_REPLACEMENT, or leave node_probs out"
        )
    if not probs.is_floating_point():
        raise DraftError(f"Draft.node_probs is {probs.dtype}, not floating point")
    if draft.vocab_map is not None and draft.vocab_map.dtype != torch.int64:
        raise DraftError(f"Draft.vocab_map is {draft.vocab_map.dtype}, not int64")
    if draft.vocab_map is not None and len(draft.vocab_map) != probs.shape[2]:
        raise DraftError(f"Draft.vocab_map has {len(draft.vocab_map)} ids for a q over {probs.shape[2]}")
    return is_drawn


def _with_lawful_rows(draft: Draft) -> tuple[Draft, list[list[bool]]]:
    """Return the draft with q normalised, and `[B][N + 1]`: which rows of q are distributions.

    Takes two passes over q, and a third one only if a sum is within the tolerance but not exact.
    """
    assert draft.node_probs is not None
    probs = draft.node_probs.detach()
    if probs.shape[2] == 0:
        return draft, [[False] * probs.shape[1]] * probs.shape[0]
    is_half = probs.dtype in (torch.float16, torch.bfloat16)
    sums = probs.sum(-1, dtype=torch.float32 if is_half else probs.dtype)
    # These are comparisons of a few numbers: they are cheapest on the host.
    totals, lows = torch.stack((sums, probs.amin(-1).to(sums))).cpu().numpy()
    tolerance = _HALF_SUM_TOLERANCE if is_half else _SUM_TOLERANCE
    is_law = (abs(totals - 1.0) <= tolerance) & (lows >= 0.0)
    is_off = is_law & (abs(totals - 1.0) > _EXACT_SUM_TOLERANCE)
    if not is_half and is_off.any():
        sums = torch.from_numpy(np.where(is_off, totals, 1.0)).to(probs)
        draft = replace(draft, node_probs=probs / sums[..., None])
    flags: list[list[bool]] = is_law.tolist()
    return draft, flags


def check_vocab_map(vocab_map: torch.Tensor, vocab_size: int) -> None:
    """Raise unless a vocabulary map contains only target ids, all different.

    An id mapped to -1 would end a row like padding, and the mass of ids mapped to the same target id would
    belong to none of them.

    Raises:
        DraftError: naming the first entry that is wrong.
    """
    ids = vocab_map.cpu()
    outside = (ids < 0) | (ids >= vocab_size)
    if bool(outside.any()):
        at = int(outside.nonzero()[0])
        raise DraftError(
            f"Draft.vocab_map maps id {at} to {int(ids[at])}, which is none of the target's {vocab_size}"
        )
    counts = torch.bincount(ids, minlength=vocab_size)
    if bool((counts > 1).any()):
        raise DraftError(f"Draft.vocab_map maps several ids to {int(counts.argmax())}")


def select_rows(draft: Draft, indices: Sequence[int]) -> Draft:
    """Return some rows of a checked draft, in the order of `indices`."""
    assert draft.host_rows is not None
    if list(indices) == list(range(len(draft.host_rows))):
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
        proposers=None if draft.proposers is None else tuple(draft.proposers[i] for i in indices),
        host_rows=tuple(draft.host_rows[i] for i in indices),
    )


def _valid_length(row: Sequence[int], limit: int, vocab_size: int) -> int:
    for node in range(limit):
        if not 0 <= row[node] < vocab_size:
            return node
    return limit


def _valid_tree_length(parents: Sequence[int], limit: int) -> int:
    """Return the number of nodes before the first one whose parent does not precede it."""
    for node in range(limit):
        if not -1 <= parents[node] < node:
            return node
    return limit


def _chain_length(parents: Sequence[int], limit: int) -> int:
    """Return the number of nodes before the first one that is not its predecessor's child."""
    for node in range(limit):
        if parents[node] != node - 1:
            return node
    return limit


def _lawful_length(is_law: Sequence[bool], parents: Sequence[int] | None, limit: int) -> int:
    """Return the number of nodes before the first one whose parent's row of q is not a distribution."""
    for node in range(limit):
        if not is_law[node if parents is None else parents[node] + 1]:
            return node
    return limit
