"""Removes the parts of a draft that cannot be scored or verified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from specdec.engine.speculation.received import DraftError, copied, receive
from specdec.interfaces.draft import PADDING_ID, CheckedDraft, Draft, DrawnNodes
from specdec.interfaces.unread import UnreadIds, rows_of
from specdec.noise import row_operations

__all__ = ["DraftError", "check_draft", "check_vocab_map", "select_rows"]

_SUM_TOLERANCE = 1e-3
_EXACT_SUM_TOLERANCE = 1e-5  # beyond it q is normalised: a token drawn by weights follows their shares
_HALF_SUM_TOLERANCE = 4e-3  # the error of rounding to bfloat16 alone
_HALVES = (torch.float16, torch.bfloat16)
_STAND_IN = 0


def check_draft(
    offered: object, max_nodes: Sequence[int], vocab_size: int, *, takes_trees: bool = True, reads: bool = False,
    name: str | None = None,
) -> tuple[CheckedDraft, int, str | None]:  # fmt: skip
    """Return the usable part of a draft, as an own copy, the number of nodes cut, and what is wrong with the first of them.

    Only `vocab_map` is still the plugin's, because it is copied and checked once, see `check_vocab_map`.

    A row without q is cut at its cap, and before its first node with an id outside the vocabulary or a parent
    that does not precede it: any prefix of a row is a valid draft. Without `takes_trees` a row is cut before
    its first node that is not its predecessor's child; the result is a chain. Equal siblings stay, and are told.

    In a row with q, the presence of a node must not depend on the token drawn for it, or acceptance no longer
    follows from p and q. An id outside the vocabulary therefore stays: `drawn.token_ids` keeps it, and it is
    rejected with its q; `rows` has a valid id in its place, which is scored. If a row of q is not a
    distribution (not finite, negative, not summing to 1), the draft's row is cut before the first node drawn
    from it. This cut depends only on nodes before it, and so does a cut by parents.

    Nodes of a draft with `num_nodes` are read now only with `reads`, of trees that are made chains or have q, and with a q in
    half precision: what is wrong shows later in `UnreadIds.num_outside`. Drafts that name no proposers are those of `name`.

    Raises:
        DraftError: if it does not belong to this batch at all.
    """
    most = max(max_nodes, default=0)
    received = receive(offered, len(max_nodes), most, vocab_size)
    names = received.proposers or (None if name is None else (name,) * len(max_nodes))
    ids, probs = received.token_ids, received.node_probs
    if received.num_nodes is not None:
        is_ready = probs is None or (probs.dtype not in _HALVES and probs.device.type != "cpu")
        if not reads and is_ready and (received.parents is None or (takes_trees and probs is None)):
            return _unread(received, received.num_nodes, max_nodes, vocab_size, names)
        ids, probs = ids[:, :most].clone(), None if probs is None else copied(probs[:, : most + 1])
    is_drawn = [True] * len(max_nodes) if received.has_probs is None else received.has_probs.tolist()
    parents: list[list[int]] | None = None if received.parents is None else received.parents.tolist()
    is_normal = None if probs is None else _normalise(probs)
    kept: list[tuple[int, ...]] = []
    num_cut, first_flaw = 0, None
    for index, row in enumerate(received.token_ids.tolist()):
        if received.num_nodes is not None:
            del row[received.num_nodes[index] :]
        while received.num_nodes is None and row and row[-1] == PADDING_ID:
            row.pop()
        links = None if parents is None else parents[index]
        normal = None if is_normal is None or not is_drawn[index] else is_normal[index]
        valid, flaw = _usable(row, links, normal, max_nodes[index], vocab_size, takes_trees=takes_trees)
        num_cut += len(row) - valid
        if normal is None:
            kept.append(tuple(row[:valid]))
            if links is not None and flaw is None:
                flaw = equal_siblings(row, links)
        else:
            scored = [token if 0 <= token < vocab_size else _STAND_IN for token in row[:valid]]
            replaced = [node for node in range(valid) if scored[node] != row[node]]
            num_cut += len(replaced)
            if replaced:
                flaw = _outside(row, replaced[0], vocab_size)
            kept.append(tuple(scored))
        if flaw is not None and first_flaw is None:
            first_flaw = f"row {index}: {flaw}"
    drawn = None
    if probs is not None:
        drawn = DrawnNodes(ids[:, :most], probs, received.sampling, received.has_probs, received.vocab_map)
    trees = None
    if parents is not None and takes_trees:
        trees = tuple(tuple(row[: len(ids)]) for row, ids in zip(parents, kept, strict=True))
    sure = None
    if received.confidence is not None:
        given = received.confidence.tolist()
        sure = tuple(tuple(row[: len(ids)]) for row, ids in zip(given, kept, strict=True))
    return CheckedDraft(tuple(kept), trees, drawn, names, sure), num_cut, first_flaw


def _unread(
    received: Draft, num_nodes: Sequence[int], max_nodes: Sequence[int], vocab_size: int, names: tuple[str, ...] | None
) -> tuple[CheckedDraft, int, str | None]:  # fmt: skip
    """Return a draft whose ids are not read, cut at its caps; see `check_draft`."""
    kept = [min(pair) for pair in zip(num_nodes, max_nodes, strict=True)]
    num_cut = sum(num_nodes) - sum(kept)
    ids, drawn = received.token_ids, None
    if received.node_probs is not None and any(kept):
        q = received.node_probs
        ids, q = row_operations(q.device).sound_probs(ids.to(q.device), q, _EXACT_SUM_TOLERANCE)
        drawn = DrawnNodes(ids, q, received.sampling, received.has_probs, received.vocab_map)
    nodes = [ids] if received.parents is None else [ids, received.parents]
    # The host would see what the proposer writes later; on a device the pass takes them next, in order.
    unread = UnreadIds(torch.stack(nodes) if nodes[0].device.type == "cpu" else nodes, kept, vocab_size)
    flaw = "more nodes than max_nodes" if num_cut else None
    return CheckedDraft(unread.rows, unread.parents, drawn, names, None, unread), num_cut, flaw


def _usable(
    row: Sequence[int], parents: Sequence[int] | None, is_normal: Sequence[bool] | None, cap: int, vocab_size: int, *,
    takes_trees: bool,
) -> tuple[int, str | None]:  # fmt: skip
    """Return how many nodes of a row can be used, and what is wrong with the next one.

    Args:
        row: ids without padding.
        parents: their parents; None for a chain.
        is_normal: which rows of q are distributions; None without q.
        cap: `max_nodes`.
        vocab_size: number of the target's ids.
        takes_trees: whether it may be a tree.
    """
    valid, flaw = len(row), None
    if valid > cap:
        valid, flaw = cap, f"{valid} nodes, and max_nodes is {cap}"
    if is_normal is None:
        fit = next((node for node in range(valid) if not 0 <= row[node] < vocab_size), valid)
        if fit < valid:
            valid, flaw = fit, _outside(row, fit, vocab_size)
    if parents is not None:
        if takes_trees:
            fit = next((node for node in range(valid) if not -1 <= parents[node] < node), valid)
        else:
            fit = next((node for node in range(valid) if parents[node] != node - 1), valid)
        if fit < valid:
            remedy = "does not precede it" if takes_trees else "makes a tree: declare Capability.TREE"
            valid, flaw = fit, f"node {fit} has parent {parents[fit]}, which {remedy}"
    if is_normal is not None:
        places = range(valid) if parents is None else [parent + 1 for parent in parents[:valid]]
        fit = next((node for node, place in enumerate(places) if not is_normal[place]), valid)
        if fit < valid:
            flaw = f"node_probs[{places[fit]}], which node {fit} is drawn from, is no distribution"
            valid = fit
    return valid, flaw


def equal_siblings(row: Sequence[int], parents: Sequence[int]) -> str | None:
    """Return which nodes of a row without q are equal siblings, if any: the later one, which is scored, gains nothing."""
    pairs = [*zip(parents, row, strict=False)]
    if len(set(pairs)) == len(pairs):
        return None
    later = next(node for node, pair in enumerate(pairs) if pair in pairs[:node])
    (parent, token), first = pairs[later], pairs.index(pairs[later])
    return (
        f"node {later} has parent {parent} and id {token}, as node {first} has: draft no two equal siblings"
    )


def _outside(row: Sequence[int], node: int, vocab_size: int) -> str:
    if row[node] == PADDING_ID:
        return f"node {node} is padding (-1), which may only stand behind the last node"
    return f"node {node} has id {row[node]}, and the vocabulary has {vocab_size}"


def _normalise(probs: torch.Tensor) -> list[list[bool]]:
    """Normalise q in place where a sum is within the tolerance but not exact.

    Returns:
        `[B][N + 1]`: which rows are distributions.
    """
    if probs.shape[2] == 0:
        return [[False] * probs.shape[1]] * probs.shape[0]
    is_half = probs.dtype in _HALVES
    sums = probs.sum(-1, dtype=torch.float32 if is_half else probs.dtype)
    # These are comparisons of a few numbers: they are cheapest on the host.
    totals, lows = torch.stack((sums, probs.amin(-1).to(sums))).cpu().numpy()
    tolerance = _HALF_SUM_TOLERANCE if is_half else _SUM_TOLERANCE
    is_normal = (abs(totals - 1.0) <= tolerance) & (lows >= 0.0)
    is_off = is_normal & (abs(totals - 1.0) > _EXACT_SUM_TOLERANCE)
    if not is_half and is_off.any():
        probs /= torch.from_numpy(np.where(is_off, totals, 1.0)).to(probs)[..., None]
    flags: list[list[bool]] = is_normal.tolist()
    return flags


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


def select_rows(draft: CheckedDraft, indices: Sequence[int]) -> CheckedDraft:
    """Return some rows of a checked draft, in the order of `indices`."""
    if list(indices) == list(range(len(draft.rows))):
        return draft
    drawn = draft.drawn
    if drawn is not None:
        flags = None if drawn.has_probs is None else rows_of(drawn.has_probs, indices)
        ids, probs = rows_of(drawn.token_ids, indices), rows_of(drawn.node_probs, indices)
        drawn = replace(drawn, token_ids=ids, node_probs=probs, has_probs=flags)
    proposers = None if draft.proposers is None else tuple(draft.proposers[i] for i in indices)
    if draft.unread is not None:
        unread = draft.unread.of_rows(indices)
        return CheckedDraft(unread.rows, unread.parents, drawn, proposers, unread=unread)
    parents = None if draft.parents is None else tuple(draft.parents[i] for i in indices)
    return CheckedDraft(tuple(draft.rows[i] for i in indices), parents, drawn, proposers)
