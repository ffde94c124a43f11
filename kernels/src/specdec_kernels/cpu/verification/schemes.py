"""The schemes of rejection sampling and block verification on the CPU."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from specdec.samplers import PaddedDrafts, ProbArrays, Rule, Scheme
from specdec_kernels.cpu.compiled.jit import njit
from specdec_kernels.cpu.verification.siblings import try_children

Floats = npt.NDArray[np.floating]
Doubles = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]
_NOTHING = np.empty(0, np.int64)


def compiled_scheme(padded: PaddedDrafts, *, is_block: bool) -> Scheme:
    """Return the scheme of rejection sampling or block verification, for tensors on the CPU.

    Without q block verification has nothing to gain and is not used: for point masses both are plain
    sampling.
    """
    target, q = padded.probs.numpy(), padded.draft_probs
    if q is None:
        is_block, is_taken_out = False, False
        no_row = np.zeros(padded.size, np.bool_)
        q_rows = ProbArrays(np.empty((0, 0, 0), target.dtype), no_row, _NOTHING, _NOTHING)
    else:
        is_taken_out = q.is_taken_out
        q_rows = q.as_arrays(padded.size)
    token_ids = np.ascontiguousarray(padded.token_ids.numpy())
    starts, parents = (np.ascontiguousarray(each) for each in (padded.rows[:, 0], padded.parents))
    given = (
        target, starts, padded.num_nodes.numpy(), parents, token_ids, *q_rows, is_taken_out, is_block
    )  # fmt: skip
    thresholds, weights = _node_chances(*given)
    return Scheme(
        torch.from_numpy(thresholds),
        Rule.POST_ORDER if is_block else Rule.FIRST_CHILD,
        lambda stop: torch.from_numpy(_residuals(*given, weights, stop.numpy())),
    )


@njit(cache=True, nogil=True)
def _node_chances(
    target: Floats,
    starts: Int64s,
    counts: Int64s,
    parents: Int64s,
    tokens: Int64s,
    probs: Floats,
    is_drawn: npt.NDArray[np.bool_],
    target_ids: Int64s,
    draft_ids: Int64s,
    is_taken_out: bool,
    is_block: bool,
) -> tuple[Doubles, Doubles]:
    """Return thresholds `[B, N]`, and P `[B, N + 1]` of every node before any of its children has failed."""
    thresholds, weights = np.zeros(parents.shape), np.ones((parents.shape[0], parents.shape[1] + 1))
    rest, q_row = np.empty(target.shape[1]), np.empty(target.shape[1])
    nothing = np.empty(0, probs.dtype)
    for i in range(starts.shape[0]):
        acceptance = np.zeros(parents.shape[1])
        for node in range(-1, counts[i]):
            after, _ = try_children(
                node, counts[i], parents[i], tokens[i], target[starts[i] + node + 1],
                probs[i, node + 1] if is_drawn[i] else nothing, is_drawn[i], target_ids, draft_ids, is_taken_out, is_block,
                weights[i, node + 1], False, rest, q_row, acceptance,
            )  # fmt: skip
            if is_block:
                weights[i, 1:] = acceptance
                if node >= 0:
                    thresholds[i, node] = after
        if not is_block:
            thresholds[i] = acceptance
    return thresholds, weights


@njit(cache=True, nogil=True)
def _residuals(
    target: Floats,
    starts: Int64s,
    counts: Int64s,
    parents: Int64s,
    tokens: Int64s,
    probs: Floats,
    is_drawn: npt.NDArray[np.bool_],
    target_ids: Int64s,
    draft_ids: Int64s,
    is_taken_out: bool,
    is_block: bool,
    weights: Doubles,
    stops: Int64s,
) -> Doubles:
    """Return `[B, V]`: the residual of p after each stop, all of its children failed; up to a factor."""
    out = np.empty((starts.shape[0], target.shape[1]))
    q_row = np.empty(target.shape[1])
    acceptance = np.empty(parents.shape[1])
    nothing = np.empty(0, probs.dtype)
    for i in range(starts.shape[0]):
        node = stops[i]
        row = target[starts[i] + node + 1]
        _, scale = try_children(
            node, counts[i], parents[i], tokens[i], row, probs[i, node + 1] if is_drawn[i] else nothing, is_drawn[i],
            target_ids, draft_ids, is_taken_out, is_block, weights[i, node + 1], True, out[i], q_row, acceptance,
        )  # fmt: skip
        if scale == 0.0 or out[i].max() <= 0.0:
            # No mass is left if p = q and rounding caused the rejection: use p.
            out[i] = row
    return out
