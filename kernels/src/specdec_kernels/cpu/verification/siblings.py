"""Rejection sampling and block verification on the CPU, compiled: one pass over a row where torch needs several.

Uses the recursion of `sibling_walk` and the closed forms of `rejection` and `block`, which are the
specification, in double precision. A residual is kept as `rest * scale`, so that normalisation needs no extra
pass.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specdec_kernels.cpu.compiled.arrays import copy_row
from specdec_kernels.cpu.compiled.jit import njit

Floats = npt.NDArray[np.floating]
Int64s = npt.NDArray[np.int64]


@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz", "contract"})
def _subtract(rest: Floats, factor: float, q_row: Floats, share: float) -> float:
    """Set `rest` to `max(rest * factor - q_row * share, 0)`; return its sum."""
    mass = 0.0
    for j in range(rest.shape[0]):
        left = max(rest[j] * factor - q_row[j] * share, 0.0)
        rest[j] = left
        mass += left
    return mass


@njit(cache=True, nogil=True)
def _spread(probs: Floats, target_ids: Int64s, q_row: Floats) -> float:
    """Write a row of q over the target's ids to `q_row`; return the mass outside the vocabulary."""
    size = q_row.shape[0]
    outside = 0.0
    if target_ids.shape[0] == 0:
        shared = min(size, probs.shape[0])
        copy_row(probs, q_row[:shared])
        q_row[shared:] = 0.0
        for j in range(shared, probs.shape[0]):
            outside += probs[j]
        return outside
    q_row[:] = 0.0
    for j in range(probs.shape[0]):
        token = target_ids[j]
        if 0 <= token < size:
            q_row[token] += probs[j]
        else:
            outside += probs[j]
    return outside


@njit(cache=True, nogil=True)
def _prob_under_q(probs: Floats, token: int, vocab_size: int, target_ids: Int64s, draft_ids: Int64s) -> float:
    """Return q of one drawn id, inside or outside the target's vocabulary."""
    if target_ids.shape[0] == 0:
        return float(probs[token]) if 0 <= token < probs.shape[0] else 0.0
    if 0 <= token < vocab_size:
        return float(probs[draft_ids[token]]) if draft_ids[token] >= 0 else 0.0
    total = 0.0
    for j in range(probs.shape[0]):
        if target_ids[j] == token:
            total += probs[j]
    return total


@njit(cache=True, nogil=True)
def try_children(
    node: int,
    count: int,
    parents: Int64s,
    tokens: Int64s,
    target: Floats,
    probs: Floats,
    is_drawn: bool,
    target_ids: Int64s,
    draft_ids: Int64s,
    is_taken_out: bool,
    is_block: bool,
    weight: float,
    is_asked: bool,
    rest: Floats,
    q_row: Floats,
    acceptance: Floats,
) -> tuple[float, float]:
    """Try the children of one node, assuming that each fails.

    Args:
        node: whose children; -1 is the last committed token.
        count: nodes of the draft.
        parents: `[N]`.
        tokens: `[N]` as drawn.
        target: `[V]` p after the node.
        probs: `[V']` q after the node.
        is_drawn: whether q is used; otherwise the children are point masses.
        target_ids: see `ProbArrays`.
        draft_ids: see `ProbArrays`.
        is_taken_out: siblings were drawn without replacement.
        is_block: P changes with every child that fails.
        weight: P after the node before its children are tried; 1 for rejection.
        is_asked: whether the residual is requested.
        rest: `[V]` written if it is: the residual, up to a factor.
        q_row: `[V]` scratch.
        acceptance: `[N]` written at the children.

    Returns:
        P after all children, and the factor of `rest`: 0 where no mass is left.
    """
    size = target.shape[0]
    scale, share, outside = 1.0, 1.0, 0.0
    is_open, is_spread = False, False
    if is_asked:
        copy_row(target, rest)
        is_open = True
    for child in range(node + 1, count):
        if parents[child] != node:
            continue
        token = tokens[child]
        is_inside = 0 <= token < size
        at_target = 0.0
        if is_inside:
            at_target = rest[token] * scale if is_open else float(target[token])
        at_q = 1.0
        if is_drawn and is_spread and is_inside:
            at_q = q_row[token] * share
        elif is_drawn:
            at_q = _prob_under_q(probs, token, size, target_ids, draft_ids)
        acceptance[child] = min(1.0, weight * at_target / at_q) if at_q > 0.0 else 0.0
        is_last = True
        for later in range(child + 1, count):
            if parents[later] == node:
                is_last = False
                break
        if is_last and not is_asked and not is_block:
            continue
        if not is_open and (is_drawn or not is_last):
            copy_row(target, rest)
            is_open = True
        if is_drawn:
            if not is_spread:
                outside = _spread(probs, target_ids, q_row)
                is_spread = True
            mass = _subtract(rest, weight * scale, q_row, share)
            scale = 1.0 / mass if mass > 0.0 else 0.0
        else:
            mass = weight * (1.0 - at_target)
            scale = scale / (1.0 - at_target) if at_target < 1.0 else 0.0
            if is_open and is_inside:
                rest[token] = 0.0
        if is_block:
            weight = mass / (mass + (1.0 - weight)) if mass > 0.0 else 0.0
        if is_drawn and is_taken_out and not is_last:
            if is_inside:
                q_row[token] = 0.0
            else:
                # Ids outside the vocabulary share one number, so the id's own part of it is looked up.
                outside = max(0.0, outside - _prob_under_q(probs, token, size, target_ids, draft_ids))
            mass = q_row.sum() + outside
            share = 1.0 / mass if mass > 0.0 else 0.0
    return weight, scale
