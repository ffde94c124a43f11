"""The compiled part of the index: index the new tokens of all rows of a batch and draft.

A request owns a segment of two shared arrays: space for tokens, and for each n-gram length a hash table of
`capacity` entries. A table has one entry per distinct n-gram: the position after one of its occurrences (24 bits)
and a part of its hash (7 bits); 0 is empty. Matches are verified by comparing tokens.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

try:
    from specdec_kernels.cpu.compiled.jit import njit  # keeps the code on disk
except ModuleNotFoundError:  # as in another engine's environment: numba's own, without a cache that may fail

    def njit(*, cache: bool) -> Any:  # type: ignore[misc]  # both decorate
        """Return numba's decorator."""
        return numba.njit


Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

OFFSET, CAPACITY, NUM_TOKENS, NUM_INDEXED, SOURCE, NUM_FIELDS = range(6)
"""Columns of `states`; SOURCE is the position that follows the matched occurrence, or -1 without a match."""
STATE, START, COUNT, MAX_NODES, NUM_ROW_FIELDS = range(5)
"""Lines of `rows`, the inputs of a step for each row of the batch."""

POSITION_BITS = 24
POSITION_MASK = (1 << POSITION_BITS) - 1
MAX_TOKENS = POSITION_MASK
"""The longest context an entry can point into."""
HASH_SEED = 0x2545F4914F6CDD1D
HASH_FACTOR = -0x61C8864680B583EB
ALL_HASH_BITS = -1
MOST_TOUCHED = 8
"""The most new tokens of a row whose table entries are prefetched; those of a prompt would evict one another."""


@njit(cache=True)
def _is_same(tokens: Int32s, one: int, other: int, length: int) -> bool:
    """Compare the n-grams that end before `one` and before `other`."""
    back = 1
    while back <= length and tokens[one - back] == tokens[other - back]:
        back += 1
    return back > length


@njit(cache=True)
def _hash_next(mixed: int, token: int) -> int:
    """Extend a running hash by one token."""
    return (mixed ^ token) * HASH_FACTOR


@njit(cache=True)
def _touch_tables(
    tokens: Int32s,
    tables: Int32s,
    offset: int,
    capacity: int,
    begin: int,
    end: int,
    shortest: int,
    longest: int,
    hash_mask: int,
) -> int:
    """Prefetch the entries that `_index_tokens` will read first.

    Its own reads depend on one another. These do not, so the cache misses of a whole batch overlap.
    """
    num_lengths = longest - shortest + 1
    slot_mask = capacity - 1
    seen = 0
    for position in range(begin, end):
        mixed = HASH_SEED
        for length in range(1, min(longest, position + 1) + 1):
            mixed = _hash_next(mixed, tokens[offset + position + 1 - length])
            if length >= shortest:
                key = (mixed ^ (mixed >> 32)) & hash_mask
                seen ^= tables[offset * num_lengths + (length - shortest) * capacity + (key & slot_mask)]
    return seen


@njit(cache=True)
def _index_tokens(
    tokens: Int32s,
    tables: Int32s,
    offset: int,
    capacity: int,
    begin: int,
    end: int,
    shortest: int,
    longest: int,
    keeps_first: bool,
    hash_mask: int,
) -> int:
    """Insert all n-grams that end at positions `begin .. end - 1`; return the SOURCE of the last position."""
    num_lengths = longest - shortest + 1
    slot_mask = capacity - 1
    source = -1
    for position in range(begin, end):
        source = -1
        mixed = HASH_SEED
        for length in range(1, min(longest, position + 1) + 1):
            mixed = _hash_next(mixed, tokens[offset + position + 1 - length])
            if length < shortest:
                continue
            table = offset * num_lengths + (length - shortest) * capacity
            key = (mixed ^ (mixed >> 32)) & hash_mask
            tag = (key >> 40) & 0x7F
            slot = key & slot_mask
            new_entry = (tag << POSITION_BITS) | (position + 1)
            while True:
                entry = tables[table + slot]
                if entry == 0:
                    tables[table + slot] = new_entry
                    break
                found = entry & POSITION_MASK
                is_candidate = entry >> POSITION_BITS == tag
                if is_candidate and _is_same(tokens, offset + found, offset + position + 1, length):
                    source = found
                    if not keeps_first:
                        tables[table + slot] = new_entry
                    break
                slot = (slot + 1) & slot_mask
    return source


@njit(cache=True)
def _draft(
    tokens: Int32s, offset: int, end: int, source: int, max_nodes: int, keeps_first: bool, nodes: Int64s
) -> int:
    """Copy tokens from `source` into `nodes` `[N]`, pad with -1, and return the number of copied tokens."""
    num_nodes = 0
    if source >= 0:
        num_nodes = min(max_nodes, end - source) if keeps_first else max_nodes
    read = source
    for node in range(num_nodes):
        nodes[node] = tokens[offset + read]
        read += 1
        if read == end:  # the draft has reached its own first token: continue there
            read = source
    for node in range(num_nodes, len(nodes)):
        nodes[node] = -1
    return num_nodes


@njit(cache=True)
def needs_attention(states: Int64s, rows: Int64s, num_new: int) -> bool:
    """Return whether the inputs of a step are invalid or a segment is too small; arguments as for `run_step`."""
    total = 0
    for row in range(rows.shape[1]):
        for field in range(NUM_ROW_FIELDS):
            if rows[field, row] < 0:
                return True
        state = states[rows[STATE, row]]
        total += rows[COUNT, row]
        if rows[START, row] > state[NUM_TOKENS]:
            return True
        if 4 * (rows[START, row] + rows[COUNT, row]) > 3 * state[CAPACITY]:
            return True
    return total != num_new


@njit(cache=True)
def run_step(
    tokens: Int32s,
    tables: Int32s,
    states: Int64s,
    rows: Int64s,
    new_token_ids: Int32s,
    shortest: int,
    longest: int,
    keeps_first: bool,
    hash_mask: int,
    drafts: Int64s,
    num_drafted: Int64s,
) -> int:
    """Index the new tokens of every row and draft.

    Args:
        tokens: `[P]` tokens of all requests.
        tables: `[P * lengths]` hash tables of all requests.
        states: `[S, NUM_FIELDS]`, one line per held request.
        rows: `[NUM_ROW_FIELDS, B]`, the inputs of the step.
        new_token_ids: `[T or more]`, rows concatenated.
        shortest: the shortest n-gram indexed.
        longest: the longest n-gram indexed.
        keeps_first: match the earliest occurrence and end drafts with the text.
        hash_mask: `ALL_HASH_BITS`; fewer bits cause collisions, for tests.
        drafts: `[B, N]` output: the drafts, padded with -1.
        num_drafted: `[B]` output: the lengths of the drafts.

    Returns:
        the length of the longest draft.
    """
    num_rows = rows.shape[1]
    num_lengths = longest - shortest + 1
    taken = 0
    for row in range(num_rows):
        state = states[rows[STATE, row]]
        start = rows[START, row]
        count = rows[COUNT, row]
        offset = state[OFFSET]
        capacity = state[CAPACITY]
        if start < state[NUM_INDEXED]:  # entries cannot be removed one by one: reindex the remaining tokens
            tables[offset * num_lengths : (offset + capacity) * num_lengths] = 0
            state[NUM_INDEXED] = 0
            state[SOURCE] = -1
        for index in range(count):
            tokens[offset + start + index] = new_token_ids[taken + index]
        taken += count
        state[NUM_TOKENS] = start + count
        soon = start + min(count, MOST_TOUCHED)
        # Stored until the second loop overwrites it, because the compiler would remove unused reads.
        num_drafted[row] = _touch_tables(
            tokens, tables, offset, capacity, start, soon, shortest, longest, hash_mask
        )

    most = 0
    for row in range(num_rows):
        state = states[rows[STATE, row]]
        offset = state[OFFSET]
        begin = state[NUM_INDEXED]
        end = state[NUM_TOKENS]
        if begin < end:
            state[SOURCE] = _index_tokens(
                tokens, tables, offset, state[CAPACITY], begin, end, shortest, longest, keeps_first, hash_mask
            )
            state[NUM_INDEXED] = end
        num_nodes = _draft(tokens, offset, end, state[SOURCE], rows[MAX_NODES, row], keeps_first, drafts[row])
        num_drafted[row] = num_nodes
        most = max(most, num_nodes)
    return most
