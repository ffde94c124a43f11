"""A chain of tokens drafted in one compiled call: embed, run the layers, project, choose, and again."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from specdec.noise.host import race
from specdec.runner.host.math import fast_exp, widen
from specdec.runner.host.product import Weights, product
from specdec.runner.host.stack import run_layers
from specdec.runner.kv_cache import Stored

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
_COLDEST = np.float32(1e-30)
"""Below it the best id is as good as certain, and one over it overflows in the end."""


@njit(nogil=True, cache=True, error_model="numpy")
def run_chain(
    logits: Floats,
    num_ids: int,
    temperatures: Floats,
    seeds: Ints,
    samples: Ints,
    noise_positions: Ints,
    embedding: Weights,
    head: Weights,
    table: Ints,
    first_norm: Floats,
    epsilon: float,
    head_epsilon: float,
    scaling: np.float32,
    num_kv_heads: int,
    stored_like: Stored,
    num_slots: int,
    cos: Floats,
    sin: Floats,
    segments: Ints,
    query: Floats,
    attended: Floats,
    activated: Floats,
    normed: Floats,
    out: Ints,
) -> None:
    """Choose `out.shape[1]` tokens for each row; the last of them is not run.

    Args:
        logits: `[B, Vd]` of the last token of each row; overwritten.
        num_ids: only ids below it are chosen.
        temperatures: `[B]`; at 0 the highest logit is chosen, else the id that the noise of `strict` chooses.
        seeds: `[B]` request seeds.
        samples: `[B]` sample indices.
        noise_positions: `[B]` position of the first token to choose.
        embedding: `[Vd, H]`.
        head: `[Vd, H]`.
        table: see `run_layers`, like the next six.
        first_norm: ditto.
        epsilon: ditto.
        head_epsilon: ditto.
        scaling: ditto.
        num_kv_heads: ditto.
        stored_like: ditto.
        num_slots: ditto.
        cos: `[P, D]` by position.
        sin: `[P, D]` by position.
        segments: `[4, B]` as in `HostSegments.table`, one row each; advanced.
        query: scratch, like the next two; see `run_layers`.
        attended: ditto.
        activated: ditto.
        normed: ditto.
        out: `[B, K]`, written.
    """
    num_rows, hidden = normed.shape
    x = np.empty((num_rows, hidden), np.float32)
    weights = np.empty(num_ids, np.float32)
    slots = np.empty(num_rows, np.int64)
    nowhere = np.full(table.shape[0], -1)
    no_aux = np.empty((0, num_rows, hidden), np.float32)
    no_tree = np.empty((0, 0), np.bool_)
    for step in range(out.shape[1]):
        for row in range(num_rows):
            out[row, step] = _choose(
                logits[row], temperatures[row], seeds[row], noise_positions[row] + step, samples[row], weights
            )
        if step + 1 == out.shape[1]:
            return
        for row in range(num_rows):
            token = out[row, step]
            for d in range(hidden):
                x[row, d] = widen(embedding[token, d])
            slots[row] = segments[2, row] + segments[3, row]
        run_layers(
            x, table, first_norm, epsilon, head_epsilon, scaling, num_kv_heads, head, stored_like, num_slots, cos, sin,
            segments[3].copy(), slots, segments, no_tree, nowhere, no_aux, query, attended, activated, normed,
        )  # fmt: skip
        product(normed, head, logits)
        segments[3] += 1


@njit(nogil=True, cache=True, fastmath=True, error_model="numpy")
def _choose(
    logits: Floats, temperature: np.float32, seed: int, position: int, sample: int, weights: Floats
) -> int:
    """Choose one id of the first `len(weights)` of `logits`; `weights` is scratch."""
    best = 0
    for j in range(weights.shape[0]):
        if logits[j] > logits[best]:
            best = j
    if temperature < _COLDEST:
        return best
    highest = logits[best]
    scale = np.float32(1.0) / temperature
    for j in range(weights.shape[0]):
        weights[j] = fast_exp((logits[j] - highest) * scale)
    drawn = race(weights, seed, position, sample, 0)
    return drawn if drawn >= 0 else best  # nobody wins where logits are not numbers
