"""Walks drafts along the tokens that the target draws, compiled; draws only along the accepted path."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specdec_kernels.cpu.compiled.jit import njit
from specdec_kernels.cpu.compiled.math import exp
from specdec_kernels.cpu.rows.noise import race


@njit(cache=True, nogil=True, inline="always")
def _draw(
    logits: npt.NDArray[np.floating],
    is_greedy: bool,
    seed: int,
    position: int,
    sample: int,
    weights: npt.NDArray[np.floating],
) -> int:
    """Return the id drawn from `logits [V]`; -1 if they contain NaN or are all -inf. `weights [V]` is scratch."""
    highest, has_nan = logits.dtype.type(-np.inf), False
    for j in range(logits.shape[0]):
        has_nan |= logits[j] != logits[j]
        if logits[j] > highest:
            highest = logits[j]
    if has_nan or highest == -np.inf:
        return -1
    if is_greedy:
        best = 0
        while logits[best] != highest:
            best += 1
        return best
    for j in range(logits.shape[0]):
        weights[j] = exp(logits[j] - highest)
    return race(weights, seed, position, sample, 0)


@njit(cache=True, nogil=True)
def walk(
    logits: npt.NDArray[np.floating],
    is_greedy: npt.NDArray[np.bool_],
    row_starts: npt.NDArray[np.int64],
    num_nodes: npt.NDArray[np.int64],
    drafted: npt.NDArray[np.int64],
    parents: npt.NDArray[np.int64],
    seeds: npt.NDArray[np.int64],
    samples: npt.NDArray[np.int64],
    positions: npt.NDArray[np.int64],
    out_nodes: npt.NDArray[np.int64],
    out_tokens: npt.NDArray[np.int64],
    out_counts: npt.NDArray[np.int64],
) -> None:
    """Walk each request's draft along the nodes that equal the token drawn at their position.

    Draws are made after the last committed token and after accepted nodes. Equal siblings are accepted together. The
    longest accepted path is returned; of equally long paths, the first.

    Args:
        logits: `[R, V]` p-logits (the target's after temperature and truncation), with at least one above -inf in each row.
        is_greedy: `[B]` whether to take the best id instead of drawing; ties go to the lowest id.
        row_starts: `[B]` row of each request's last committed token.
        num_nodes: `[B]`.
        drafted: `[B, N]` drafted ids.
        parents: `[B, N]` parents.
        seeds: `[B]`.
        samples: `[B]`.
        positions: `[B]` absolute position of the first token to emit.
        out_nodes: `[B, N + 1]` written: accepted nodes.
        out_tokens: `[B, N + 1]` written: emitted tokens.
        out_counts: `[B]` written: accepted nodes per request.
    """
    drawn = np.empty(drafted.shape[1] + 1, np.int64)
    depths = np.zeros(drafted.shape[1] + 1, np.int64)
    weights = np.empty(logits.shape[1], logits.dtype)
    for i in range(row_starts.shape[0]):
        first = row_starts[i]
        drawn[0] = _draw(logits[first], is_greedy[i], seeds[i], positions[i], samples[i], weights)
        last = -1
        for node in range(num_nodes[i]):
            parent = parents[i, node]
            drawn[node + 1] = -1
            if drafted[i, node] != drawn[parent + 1]:
                continue
            depth = depths[parent + 1] + 1
            depths[node + 1] = depth
            row, position = logits[first + node + 1], positions[i] + depth
            drawn[node + 1] = _draw(row, is_greedy[i], seeds[i], position, samples[i], weights)
            if depth > depths[last + 1]:
                last = node
        count = depths[last + 1]
        out_counts[i] = count
        out_tokens[i, count] = drawn[last + 1]
        node = last
        for place in range(count - 1, -1, -1):
            out_nodes[i, place] = node
            out_tokens[i, place] = drafted[i, node]
            node = parents[i, node]
