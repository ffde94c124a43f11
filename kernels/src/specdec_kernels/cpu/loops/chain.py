"""Drafts chains in one compiled call: run new tokens, then repeatedly choose, embed, run the layers and project."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specdec_kernels.cpu.compiled.arrays import copy_row, copy_rows
from specdec_kernels.cpu.compiled.jit import njit
from specdec_kernels.cpu.compiled.jobs import call_of
from specdec_kernels.cpu.compiled.math import fast_exp
from specdec_kernels.cpu.compiled.team import run_with_team
from specdec_kernels.cpu.loops.forward import run_in_team
from specdec_kernels.cpu.loops.frame import Entry, Tables
from specdec_kernels.cpu.loops.more_ids import logits_of
from specdec_kernels.cpu.loops.stack import Floats, Ints
from specdec_kernels.cpu.rows.draw import can_draw
from specdec_kernels.cpu.rows.in_team import draw_in_team, highest_in_team, sure_of_highest
from specdec_kernels.cpu.rows.noise import multinomial

_COLDEST = np.float32(1e-30)
"""Below this temperature the best id is practically certain, and `1 / temperature` eventually overflows."""


@njit(nogil=True, cache=True, error_model="numpy")
def run_chain(
    tokens: Ints, features: Floats, taken_logits: Floats, taken_states: Floats, logits: Floats, states: Floats, num_ids: int,
    target_ids: Ints, more_ids: Ints, more_ends: Ints, temperatures: Floats, cuts: Floats, seeds: Ints, samples: Ints,
    noise_positions: Ints, words: Ints, is_coupled: bool, threshold: np.float32, ratio: float, tables: Tables,
    num_slots: int, segments: Ints, out: Ints, confidences: Floats, draft_probs: Floats,
) -> int:  # fmt: skip
    """Run new tokens and draft with the threads of the model's team; see `_run_chain`. The arrays are the caller's.

    Raises:
        MemoryError: if there is not enough for intermediate results.

    Returns:
        the number of tokens chosen for each row.
    """
    num_chosen = np.zeros(1, np.int64)
    run_with_team(tables.frame[Entry.TEAM], call_of(_run_chain, (
        tokens, features, taken_logits, taken_states, logits, states, num_ids, target_ids, more_ids, more_ends, temperatures,
        cuts, seeds, samples, noise_positions, words, is_coupled, threshold, ratio, tables, num_slots, segments, out,
        confidences, draft_probs, num_chosen,
    )))  # fmt: skip
    return int(num_chosen[0])


@njit(nogil=True, error_model="numpy")
def _run_chain(
    tokens: Ints,
    features: Floats,
    taken_logits: Floats,
    taken_states: Floats,
    logits: Floats,
    states: Floats,
    num_ids: int,
    target_ids: Ints,
    more_ids: Ints,
    more_ends: Ints,
    temperatures: Floats,
    cuts: Floats,
    seeds: Ints,
    samples: Ints,
    noise_positions: Ints,
    words: Ints,
    is_coupled: bool,
    threshold: np.float32,
    ratio: float,
    tables: Tables,
    num_slots: int,
    segments: Ints,
    out: Ints,
    confidences: Floats,
    draft_probs: Floats,
    num_chosen: Ints,
) -> None:
    """Run new tokens, if any, and choose up to `out.shape[1]` more for each row; the last chosen token is not run.

    Args:
        tokens: `[T]` new tokens of all rows, concatenated row by row, or empty.
        features: `[T, H]` for heads, else empty.
        taken_logits: `[B, Vd]` of each row's last new token, written if there are new tokens.
        taken_states: `[B, H]` ditto.
        logits: `[B, Vd]` of each row's last token, read if there are no new tokens; overwritten.
        states: `[B, H]` of each row's last token, for heads, read if there are no new tokens; overwritten.
        num_ids: number of leading logits that are used.
        target_ids: `[num_ids]` the target's id of each logit, ascending, or empty if they are the same.
        more_ids: `[E]` further ids that may be chosen, concatenated row by row, or empty. With these, `target_ids` is not.
        more_ends: `[B]` where those of each row end.
        temperatures: `[B]`; at 0 the highest logit is chosen, else an id is drawn.
        cuts: `[B, 3]` top-k (0 for all), top-p and min-p of each row, for coupled draws; or empty.
        seeds: `[B]` request seeds.
        samples: `[B]` sample indices.
        noise_positions: `[B]` position of the first token to choose.
        words: `[K]` counter word of each draw; see `specdec.noise`.
        is_coupled: whether each draw uses the noise of its own position (`strict`), or all draws that of the first.
        threshold: the loop ends once every row has chosen a token with a probability below this; 0 for never.
        ratio: above 1 the probability of a token is against the next best one alone, the noise of coupled draws included, and
            found up to where their weights differ by this factor.
        tables: see `run_in_team`, like the next one.
        num_slots: ditto.
        segments: `[5, B]` as in `Table`: of the new tokens, or of one row each; advanced.
        out: `[B, K]` the target's ids, written.
        confidences: `[B, K]` probability of each token at its temperature (at 1 for greedy rows), written; or empty.
        draft_probs: `[B, K, num_ids]` the distribution each token was drawn from, written; or empty.
        num_chosen: `[1]` the number of tokens chosen for each row, written.
    """
    num_rows = logits.shape[0]
    is_over = np.zeros(num_rows, np.bool_)
    weights = np.empty(num_ids + more_ids.shape[0], np.float32)
    all_logits = np.empty(weights.shape[0], np.float32)
    all_ids = np.concatenate((target_ids, more_ids))
    slots = np.empty(num_rows, np.int64)
    nowhere = np.full(tables.layers.shape[0] + 1, -1)
    uncut = np.array([0.0, 1.0, 0.0], np.float32)
    no_aux = np.empty((0, num_rows, tables.frame[Entry.HIDDEN]), np.float32)
    no_tree = np.empty((0, 0), np.bool_)
    wants_probs = draft_probs.size > 0 or (confidences.size > 0 and ratio <= 1.0)
    all_rows = np.arange(num_rows)
    if tokens.shape[0]:
        _take_in(
            tokens, features, taken_logits, taken_states, tables, num_slots, segments, no_tree, nowhere,
        )  # fmt: skip
        copy_rows(taken_logits, logits)
        copy_rows(taken_states, states)
    for step in range(out.shape[1]):
        for row in range(num_rows):
            place = noise_positions[row] + (step if is_coupled else 0)
            chosen, count = logits[row], num_ids
            if more_ids.shape[0]:
                own = more_ids[more_ends[row - 1] if row else 0 : more_ends[row]]
                count += own.shape[0]
                copy_row(own, all_ids[num_ids:count])
                copy_row(logits[row], all_logits[:num_ids])
                logits_of(states[row], own, tables, all_logits[num_ids:count])
                chosen = all_logits
            index, chance = _choose(
                tables.frame[Entry.TEAM], chosen, temperatures[row], cuts[row] if cuts.shape[0] else uncut, seeds[row], place,
                samples[row], words[step], all_ids[:count], weights[:count], wants_probs, is_coupled, ratio,
            )  # fmt: skip
            out[row, step] = all_ids[index] if target_ids.shape[0] else index
            if confidences.size:
                confidences[row, step] = chance
            if draft_probs.size:
                copy_row(weights, draft_probs[row, step])
            if threshold > 0 and chance < threshold:
                is_over[row] = True
        if step + 1 == out.shape[1] or is_over.all():
            num_chosen[0] = step + 1
            return
        for row in range(num_rows):
            slots[row] = segments[2, row] + segments[3, row]
        run_in_team(
            out[:, step].copy(), states, tables, num_slots, segments[3].copy(), slots, segments, no_tree,
            nowhere, no_aux, all_rows, states, logits,
        )  # fmt: skip
        for row in range(num_rows):
            segments[3, row] += 1


@njit(inline="always")
def _take_in(
    tokens: Ints,
    features: Floats,
    logits: Floats,
    states: Floats,
    tables: Tables,
    num_slots: int,
    segments: Ints,
    no_tree: npt.NDArray[np.bool_],
    nowhere: Ints,
) -> None:
    """Run new tokens; writes the outputs of each request's last one, and sets `segments` to one next row per request."""
    num_tokens = tokens.shape[0]
    positions, slots = np.empty(num_tokens, np.int64), np.empty(num_tokens, np.int64)
    for request in range(segments.shape[1]):
        row, cached = segments[0, request], segments[3, request]
        for i in range(segments[1, request]):
            positions[row + i] = cached + i
            slots[row + i] = segments[2, request] + cached + i
    every = np.empty((num_tokens, states.shape[1]), np.float32)
    no_aux = np.empty((0, num_tokens, states.shape[1]), np.float32)
    last = np.empty(segments.shape[1], np.int64)
    for request in range(segments.shape[1]):
        last[request] = segments[0, request] + segments[1, request] - 1
    run_in_team(
        tokens, features, tables, num_slots, positions, slots, segments, no_tree, nowhere, no_aux, last,
        every, logits,
    )  # fmt: skip
    for request in range(segments.shape[1]):
        copy_row(every[last[request]], states[request])
        segments[0, request] = request
        segments[3, request] += segments[1, request]
        segments[1, request] = 1


@njit(nogil=True, cache=True, fastmath=True, error_model="numpy")
def _choose(
    team: int,
    logits: Floats,
    temperature: np.float32,
    cuts: Floats,
    seed: int,
    position: int,
    sample: int,
    word: int,
    target_ids: Ints,
    weights: Floats,
    wants_probs: bool,
    is_coupled: bool,
    ratio: float,
) -> tuple[int, np.float32]:
    """Choose one of the first `len(weights)` of `logits`; returns its index and, if `wants_probs` or `ratio` is above 1, its
    probability.

    `target_ids` are empty or as many: those that the noise of coupled draws is of. `weights` becomes the distribution if
    `wants_probs`.
    """
    row = logits[: weights.shape[0]]
    place = highest_in_team(team, row)
    best = max(0, place)
    is_greedy = temperature < _COLDEST
    if is_greedy and not wants_probs:
        return best, sure_of_highest(row, best) if ratio > 1.0 and place >= 0 else np.float32(1.0)
    if is_greedy and temperature > 0:  # drawn, but from a distribution that is practically a point mass
        weights[:] = np.float32(0.0)
        weights[best] = np.float32(1.0)
        return best, np.float32(1.0)
    highest = logits[best]
    scale = np.float32(1.0) if is_greedy else np.float32(1.0) / temperature
    is_valid = can_draw(row, place, scale)
    if is_coupled and is_valid and _keeps_all(cuts) and not wants_probs:
        return draw_in_team(team, row, target_ids, best, scale, seed, position, sample, word, ratio)
    mass = np.float32(0.0)
    for j in range(weights.shape[0]):
        weight = fast_exp((logits[j] - highest) * scale)
        weights[j] = weight
        mass += weight
    if wants_probs:
        for j in range(weights.shape[0]):
            weights[j] /= mass
    if is_greedy:
        return best, weights[best]
    if wants_probs:
        mass = np.float32(1.0)
    sure = np.float32(1.0)
    while True:
        index = best  # nothing is drawn if logits are NaN
        if not is_coupled:
            drawn = multinomial(weights, seed, position, sample, word)
            index = drawn if drawn >= 0 else best
        elif is_valid:
            index, sure = draw_in_team(
                team, row, target_ids, best, scale, seed, position, sample, word, ratio
            )
        if index == best or _is_kept(weights, index, mass, weights[best], cuts):
            return index, weights[index] if wants_probs else sure
        # What is no more probable than an id that is left out is left out too; the race goes on among the others.
        least, row = weights[index], row.copy()
        for j in range(weights.shape[0]):
            if weights[j] <= least:
                weights[j], row[j] = np.float32(0.0), -np.inf


@njit(inline="always")
def _keeps_all(cuts: Floats) -> bool:
    return bool(cuts[0] == 0.0 and cuts[1] >= 1.0 and cuts[2] == 0.0)


@njit(nogil=True, cache=True, fastmath=True, error_model="numpy")
def _is_kept(weights: Floats, index: int, mass: np.float32, highest: np.float32, cuts: Floats) -> bool:
    """Whether an id is among those that top-k, top-p and min-p keep, by what is more probable than it."""
    if _keeps_all(cuts):
        return True
    weight = weights[index]
    above, count = np.float32(0.0), 0
    for j in range(weights.shape[0]):
        if weights[j] > weight:
            above += weights[j]
            count += 1
    is_among = cuts[0] == 0.0 or count < cuts[0]
    return bool(is_among and above < cuts[1] * mass and weight >= cuts[2] * highest)
