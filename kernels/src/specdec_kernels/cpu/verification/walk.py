"""Walks drafts along the tokens that the target draws, compiled; draws only along the accepted path."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specdec_kernels.cpu.compiled.jit import njit
from specdec_kernels.cpu.rows.cut import draw_cut
from specdec_kernels.cpu.rows.draw import EVERY_ID, can_draw, draw
from specdec_kernels.cpu.rows.highest import highest_place

_AS_THEY_ARE = np.float32(1.0)
_NOT_KNOWN = -2


@njit(cache=True, nogil=True, inline="always")
def _draw(
    logits: npt.NDArray[np.floating], is_greedy: bool, top_k: float, top_p: float, seed: int, position: int, sample: int
) -> int:  # fmt: skip
    """Return the id drawn from `logits [V]`; -1 if they contain NaN, are all -inf, or one to draw from is infinite.

    `_NOT_KNOWN` if rounding decides what top-p keeps.
    """
    best = highest_place(logits)
    if best < 0 or logits[best] == -np.inf:
        return -1
    if is_greedy:
        return best
    if not can_draw(logits, best, _AS_THEY_ARE):
        return -1
    if top_k < logits.shape[0] or top_p < 1.0:
        drawn = draw_cut(logits, best, int(top_k), top_p, seed, position, sample, 0)
        return drawn if drawn >= 0 else _NOT_KNOWN
    return draw(logits, EVERY_ID, best, _AS_THEY_ARE, seed, position, sample, 0)


@njit(cache=True, nogil=True)
def walk(
    logits: npt.NDArray[np.floating],
    cuts: npt.NDArray[np.float64],
    requests: npt.NDArray[np.int64],
    drafted: npt.NDArray[np.int64],
    parents: npt.NDArray[np.int64],
    found: npt.NDArray[np.int64],
) -> bool:
    """Walk each request's draft along the nodes that equal the token drawn at their position.

    Draws are made after the last committed token and after accepted nodes. Equal siblings are accepted together. The
    longest accepted path is returned; of equally long paths, the first.

    Args:
        logits: `[R, V]` p-logits (the target's after temperature and truncation), with at least one above -inf in each row.
        cuts: `[B, 2]` top-k and top-p of each request; V and 1 keep all.
        requests: `[B, 6]` of each request: row of its last committed token; number of its nodes; seed; sample; absolute
            position of the first token to emit; whether to take the best id instead of drawing (ties go to the lowest id).
        drafted: `[B, N]` drafted ids.
        parents: `[B, N]` parents, or `[B, 0]` for chains.
        found: `[B, 2 N + 2]` written: number of accepted nodes; in the next N columns those nodes; then the emitted tokens.

    Returns:
        False if rounding decides what top-p keeps of a row; then `found` is of no use.
    """
    width = drafted.shape[1]
    is_chain = parents.shape[1] == 0
    drawn = np.empty(width + 1, np.int64)
    depths = np.zeros(width + 1, np.int64)
    for i in range(requests.shape[0]):
        first, num_nodes, seed = requests[i, 0], requests[i, 1], requests[i, 2]
        sample, position, is_greedy = requests[i, 3], requests[i, 4], requests[i, 5] != 0
        last = -1
        for node in range(-1, num_nodes):
            depth = 0
            if node >= 0:
                parent = node - 1 if is_chain else parents[i, node]
                drawn[node + 1] = -1
                if drafted[i, node] != drawn[parent + 1]:
                    continue
                depth = depths[parent + 1] + 1
                depths[node + 1] = depth
            row = logits[first + node + 1]
            drawn[node + 1] = _draw(row, is_greedy, cuts[i, 0], cuts[i, 1], seed, position + depth, sample)
            if drawn[node + 1] == _NOT_KNOWN:
                return False
            if depth > depths[last + 1]:
                last = node
        count = depths[last + 1]
        found[i, 0], found[i, 1 + width + count] = count, drawn[last + 1]
        node = last
        for place in range(count - 1, -1, -1):
            found[i, 1 + place], found[i, 1 + width + place] = node, drafted[i, node]
            node = node - 1 if is_chain else parents[i, node]
    return True
