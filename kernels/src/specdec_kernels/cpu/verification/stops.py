"""Compares uniforms with thresholds to find where the accepted path stops, compiled."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specdec.samplers import Rule
from specdec_kernels.cpu.compiled.jit import njit

Int64s = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]
_FIRST_CHILD, _POST_ORDER, _DEEPEST = (rule.value for rule in Rule)


@njit(cache=True, nogil=True)
def compiled_stops(
    uniforms: Doubles, thresholds: Doubles, parents: Int64s, counts: Int64s, rule: int
) -> Int64s:
    """Return the last accepted node of each draft, `[B]`.

    Args:
        uniforms: `[B, N]`.
        thresholds: `[B, N]`.
        parents: `[B, N]`.
        counts: `[B]` nodes of each draft.
        rule: `Rule.value`.
    """
    out = np.empty(counts.shape[0], np.int64)
    for i in range(counts.shape[0]):
        passes = uniforms[i] < thresholds[i]
        count = counts[i]
        stands = np.zeros(count + 1, np.bool_)
        stands[0] = True
        depths = np.zeros(count + 1, np.int64)
        stop, best = -1, 0
        if rule == _POST_ORDER:
            # First in post-order: descend to the first child whose subtree holds a passing node, while there
            # is one.
            for node in range(count - 1, -1, -1):
                if passes[node]:
                    stands[node + 1] = True
                if stands[node + 1] and parents[i, node] >= 0:
                    stands[parents[i, node] + 1] = True
            for node in range(count):
                if parents[i, node] == stop and stands[node + 1]:
                    stop = node
        else:
            for node in range(count):
                parent = parents[i, node]
                depths[node + 1] = depths[parent + 1] + 1
                stands[node + 1] = passes[node] and stands[parent + 1]
                if rule == _FIRST_CHILD and parent == stop and passes[node]:
                    stop = node
                if rule == _DEEPEST and stands[node + 1] and depths[node + 1] > best:
                    stop, best = node, depths[node + 1]
        out[i] = stop
    return out
