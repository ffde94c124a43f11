"""Checks a draft: copies what a proposer returned into plain tensors of the engine's own, and removes what cannot be scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import index as as_int

import numpy as np
import torch

from specdec.interfaces.device_nodes import DeviceNodes, rows_of
from specdec.interfaces.draft import PADDING_ID, CheckedDraft, Draft, DraftSampling, DrawnNodes

_SUM_TOLERANCE = 1e-3
_EXACT_SUM_TOLERANCE = 1e-5  # beyond it q is normalised: a token drawn by weights follows their shares
_HALF_SUM_TOLERANCE = 4e-3  # the error of rounding to bfloat16 alone
_HALVES = (torch.float16, torch.bfloat16)
_STAND_IN = 0
_KINDS = (torch.Tensor, torch.nn.Parameter)
_MAX_WIDTH = 65_536
_MAX_VOCABULARIES = 16
"""How many times the target's vocabulary a row of q may be wide."""
_FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
"""Those that torch computes with: it only stores 8-bit floats, and cannot index raw bits."""


class DraftError(ValueError):
    """A draft that does not belong to its batch, or a malformed one under `strict_drafts=True`."""


def check_draft(
    offered: object, max_nodes: Sequence[int], vocab_size: int, *, supports_trees: bool = True, reads: bool = False,
    name: str | None = None,
) -> tuple[CheckedDraft, int, str | None]:  # fmt: skip
    """Return the usable part of a draft, as an own copy, the number of nodes cut, and what is wrong with the first of them.

    Of the plugin's are still `vocab_map`, which is copied and checked once (`check_vocab_map`), and nodes on a device, until
    the pass copies them; these are checked when they are read.

    A row without q is cut at its cap, and before its first node with an id outside the vocabulary or a parent
    that does not precede it: any prefix of a row is a valid draft. Without `supports_trees` a row is cut before
    its first node that is not its predecessor's child; the result is a chain. Equal siblings stay, and are told.

    In a row with q, the presence of a node must not depend on the token drawn for it, or acceptance no longer
    follows from p and q. An id outside the vocabulary therefore stays: `drawn.token_ids` keeps it, and it is
    rejected with its q; `rows` has a valid id in its place, which is scored. If a row of q is not a
    distribution (not finite, negative, not summing to 1), the draft's row is cut before the first node drawn
    from it. This cut depends only on nodes before it, and so does a cut by parents.

    Nodes of a draft with `num_nodes` are read now only with `reads`, of trees that are made chains or have q, and with a q in
    half precision: what is wrong shows later in `DeviceNodes.num_outside`. Drafts that name no proposers are those of `name`.

    Raises:
        DraftError: if it does not belong to this batch at all.
    """
    most = max(max_nodes, default=0)
    received = receive(offered, len(max_nodes), most, vocab_size)
    names = received.proposers or (None if name is None else (name,) * len(max_nodes))
    ids, probs = received.token_ids, received.node_probs
    if received.num_nodes is not None:
        is_ready = probs is None or (probs.dtype not in _HALVES and probs.device.type != "cpu")
        if not reads and is_ready and (received.parents is None or (supports_trees and probs is None)):
            return _on_device(received, received.num_nodes, max_nodes, vocab_size, names)
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
        is_plain = links is None and normal is None and len(row) <= max_nodes[index]
        if is_plain and (not row or (min(row) >= 0 and max(row) < vocab_size)):
            kept.append(tuple(row))
            continue
        valid, flaw = _usable(row, links, normal, max_nodes[index], vocab_size, supports_trees=supports_trees)
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
    if parents is not None and supports_trees:
        trees = tuple(tuple(row[: len(ids)]) for row, ids in zip(parents, kept, strict=True))
    sure = None
    if received.confidence is not None:
        given = received.confidence.tolist()
        sure = tuple(tuple(row[: len(ids)]) for row, ids in zip(given, kept, strict=True))
    return CheckedDraft(tuple(kept), trees, drawn, names, sure), num_cut, first_flaw


def _on_device(
    received: Draft, num_nodes: Sequence[int], max_nodes: Sequence[int], vocab_size: int, names: tuple[str, ...] | None
) -> tuple[CheckedDraft, int, str | None]:  # fmt: skip
    """Return a draft whose ids are not read, cut at its caps; see `check_draft`."""
    kept = [min(pair) for pair in zip(num_nodes, max_nodes, strict=True)]
    num_cut = sum(num_nodes) - sum(kept)
    ids, drawn = received.token_ids, None
    if received.node_probs is not None and any(kept):
        q = received.node_probs
        ids, q = _distributions(ids.to(q.device), q)
        drawn = DrawnNodes(ids, q, received.sampling, received.has_probs, received.vocab_map)
    nodes = [ids] if received.parents is None else [ids, received.parents]
    # The host would see what the proposer writes later; on a device the pass takes them next, in order.
    there = DeviceNodes(torch.stack(nodes) if nodes[0].device.type == "cpu" else nodes, kept, vocab_size)
    flaw = "more nodes than max_nodes" if num_cut else None
    return CheckedDraft(((),) * len(kept), None, drawn, names, device_nodes=there), num_cut, flaw


def _distributions(ids: torch.Tensor, q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return own copies of ids `[B, N]` and q `[B, N + 1, V']`; a row that is no distribution is 0, its node padding."""
    own = q.clamp_min(0.0)  # NaN stays
    is_none = ~((own.sum(-1) - 1.0).abs() <= _EXACT_SUM_TOLERANCE)
    return ids.masked_fill(is_none[:, :-1], PADDING_ID), own.masked_fill_(is_none[..., None], 0.0)


def _usable(
    row: Sequence[int], parents: Sequence[int] | None, is_normal: Sequence[bool] | None, cap: int, vocab_size: int, *,
    supports_trees: bool,
) -> tuple[int, str | None]:  # fmt: skip
    """Return how many nodes of a row can be used, and what is wrong with the next one.

    Args:
        row: ids without padding.
        parents: their parents; None for a chain.
        is_normal: which rows of q are distributions; None without q.
        cap: `max_nodes`.
        vocab_size: number of the target's ids.
        supports_trees: whether it may be a tree.
    """
    valid, flaw = len(row), None
    if valid > cap:
        valid, flaw = cap, f"{valid} nodes, and max_nodes is {cap}"
    if is_normal is None:
        fit = next((node for node in range(valid) if not 0 <= row[node] < vocab_size), valid)
        if fit < valid:
            valid, flaw = fit, _outside(row, fit, vocab_size)
    if parents is not None:
        if supports_trees:
            fit = next((node for node in range(valid) if not -1 <= parents[node] < node), valid)
        else:
            fit = next((node for node in range(valid) if parents[node] != node - 1), valid)
        if fit < valid:
            remedy = "does not precede it" if supports_trees else "makes a tree: declare Capability.TREE"
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
    parents = None if draft.parents is None else tuple(draft.parents[i] for i in indices)
    there = None if draft.device_nodes is None else draft.device_nodes.of_rows(indices)
    return CheckedDraft(tuple(draft.rows[i] for i in indices), parents, drawn, proposers, device_nodes=there)


def receive(offered: object, size: int, most: int, vocab_size: int) -> Draft:
    """Return an own copy of a draft for `size` rows of at most `most` nodes, not checked yet. Each field is read once.

    Its tensors have at most `most` columns, but for `token_ids`, whose others are counted. Still the plugin's are
    `vocab_map`, copied once for many drafts, token ids without q, read at once, and nodes and q with `num_nodes`, as given.

    Raises:
        DraftError: if it does not belong to the batch; whatever else the plugin's objects raise.
    """
    if not isinstance(offered, Draft):
        raise DraftError(f"propose returned {type(offered).__name__}, not a Draft")
    ids = _plain("token_ids", offered.token_ids, (size,), 2, torch.int64)
    width = ids.shape[1]
    if width > _MAX_WIDTH:
        raise DraftError(f"Draft.token_ids has {width} columns, where at most {most} nodes may be drafted")
    num_nodes = None if offered.num_nodes is None else _lengths(offered.num_nodes, size, width)
    parents, confidence, probs = offered.parents, offered.confidence, offered.node_probs
    if parents is not None:
        parents = _plain("parents", parents, (size, width), 2, torch.int64)
    if confidence is not None:
        confidence = _plain("confidence", confidence, (size, width), 2)
        _check_float("confidence", confidence)
        confidence = confidence[:, :most]
    sampling, has_q, names = DraftSampling.DETERMINISTIC, False, offered.proposers
    has_probs, vocab_map = offered.has_probs, offered.vocab_map
    if has_probs is not None:
        has_probs = copied(_plain("has_probs", has_probs, (size,), 1, torch.bool))
    width_of_map = None if vocab_map is None else len(_plain("vocab_map", vocab_map, (), 1, torch.int64))
    if probs is not None:
        probs = _plain("node_probs", probs, (size, width + 1), 3)
        has_q = size > 0 if has_probs is None else bool(has_probs.any())
    if has_q and probs is not None:
        sampling = _sampling_of(offered.sampling, probs, vocab_size)
        if width_of_map is not None and width_of_map != probs.shape[2]:
            raise DraftError(f"Draft.vocab_map has {width_of_map} ids for a q over {probs.shape[2]}")
        probs = copied(probs[:, : most + 1]) if num_nodes is None else probs
    if num_nodes is None:
        ids, parents = copied(ids) if has_q else ids, None if parents is None else copied(parents[:, :most])
        confidence = None if confidence is None else copied(confidence)
    return Draft(
        token_ids=ids,
        parents=parents,
        sampling=sampling,
        node_probs=probs if has_q else None,
        has_probs=has_probs if has_q else None,
        vocab_map=vocab_map if has_q else None,
        confidence=confidence,
        proposers=None if names is None else _names(names, size),
        num_nodes=num_nodes,
    )


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """Return a dense copy in memory of its own, on the same device, whatever strides or lazy bits the tensor has."""
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def _plain(
    name: str, value: object, shape: tuple[int, ...], ndim: int, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Return an alias of a tensor that can be copied safely; `shape` has its first dimensions.

    Raises:
        DraftError: for a subclass, whose methods are the plugin's, a layout or device that holds no dense numbers,
            another shape or dtype, and memory that is smaller than the tensor says.
    """
    if not isinstance(value, torch.Tensor) or not any(type(value) is kind for kind in _KINDS):
        kind = type(value).__name__
        raise DraftError(f"Draft.{name} is {kind}, not a tensor (of torch.Tensor itself, not of a subclass)")
    tensor = value.detach()
    if tensor.layout is not torch.strided or tensor.is_meta:
        place = "on the device meta" if tensor.is_meta else f"of layout {tensor.layout}"
        raise DraftError(f"Draft.{name} is a tensor {place}: give a dense one that holds numbers")
    given = tensor.shape
    if len(given) != ndim or given[: len(shape)] != shape:
        wanted = ", ".join([*map(str, shape), *["any"] * (ndim - len(shape))])
        raise DraftError(f"Draft.{name} has shape {tuple(given)} for a batch that needs [{wanted}]")
    if dtype is not None and tensor.dtype is not dtype:
        raise DraftError(f"Draft.{name} is {tensor.dtype}, not {str(dtype).removeprefix('torch.')}")
    size = tensor.nbytes
    if size and not tensor.is_contiguous():
        size = tensor.element_size() * (
            1 + sum((n - 1) * step for n, step in zip(given, tensor.stride(), strict=True))
        )
    if size and tensor.storage_offset() * tensor.element_size() + size > tensor.untyped_storage().nbytes():
        raise DraftError(f"Draft.{name} of shape {tuple(given)} is larger than its memory")
    return tensor


def _sampling_of(given: object, probs: torch.Tensor, vocab_size: int) -> DraftSampling:
    """Return how nodes were drawn from q.

    Raises:
        DraftError: if other fields contradict q.
    """
    if given is not DraftSampling.IID and given is not DraftSampling.WITHOUT_REPLACEMENT:
        raise DraftError(
            f"Draft.node_probs is given but Draft.sampling is {given}, by which nothing was drawn: give "
            "DraftSampling.IID (for chains too) or WITHOUT_REPLACEMENT, or leave node_probs out"
        )
    _check_float("node_probs", probs)
    if probs.shape[2] > _MAX_VOCABULARIES * vocab_size:
        raise DraftError(f"Draft.node_probs is over {probs.shape[2]} ids, and the target has {vocab_size}")
    return DraftSampling(given)


def _check_float(name: str, tensor: torch.Tensor) -> None:
    if tensor.dtype not in _FLOATS:
        raise DraftError(f"Draft.{name} is {tensor.dtype}, not floating point of 16, 32 or 64 bits")


def _lengths(num_nodes: object, size: int, width: int) -> tuple[int, ...]:
    """Return the lengths of `size` rows of at most `width` nodes as exact `int`s.

    Raises:
        DraftError: if they are none.
    """
    lengths = tuple(map(as_int, num_nodes)) if isinstance(num_nodes, tuple) else ()
    if len(lengths) != size or not all(0 <= length <= width for length in lengths):
        raise DraftError(
            f"Draft.num_nodes is {num_nodes!r}, not a tuple of {size} numbers of nodes up to {width}"
        )
    return lengths


def _names(proposers: object, size: int) -> tuple[str, ...]:
    """Return the names of the proposers of `size` rows as exact `str`s.

    Raises:
        DraftError: if they are none.
    """
    names = tuple(proposers) if isinstance(proposers, tuple) else ()
    if len(names) != size or not all(isinstance(name, str) for name in names):
        raise DraftError(f"Draft.proposers is {proposers!r}, not a tuple of {size} names")
    return tuple(map(str.__str__, names))
