"""An incremental index of the n-grams of every request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from specdec_plugin_ngram import kernels
from specdec_plugin_ngram.kernels import Int32s, Int64s
from specdec_plugin_ngram.segments import SMALLEST_CAPACITY, SegmentPool


class NgramIndex:
    """Finds for every request the earlier occurrence of its last n-gram.

    The time of a step grows with new and drafted tokens, not with the context: each new token is inserted into one
    hash table per n-gram length, and the existing entry is the match. After a rollback (a start below the number of
    held tokens) the remaining tokens are reindexed.

    Args:
        shortest: the shortest n-gram that counts as a match.
        longest: the longest n-gram to look for.
        keeps_first: match the earliest occurrence instead of the most recent one.
        hash_mask: bits of the hash in use; tests clear some to cause collisions.
    """

    def __init__(
        self,
        shortest: int,
        longest: int,
        *,
        keeps_first: bool = False,
        hash_mask: int = kernels.ALL_HASH_BITS,
    ) -> None:
        self._settings = (shortest, longest, keeps_first, hash_mask)
        self._pool = SegmentPool(longest - shortest + 1)
        self._lines: dict[str, int] = {}
        self._free_lines: list[int] = []
        self._states: Int64s = np.zeros((16, kernels.NUM_FIELDS), dtype=np.int64)
        self._new_token_ids: Int32s = np.zeros(1024, dtype=np.int32)

    def __len__(self) -> int:
        return len(self._lines)

    def step(
        self,
        request_ids: Sequence[str],
        starts: npt.ArrayLike,
        counts: npt.ArrayLike,
        new_token_ids: npt.NDArray[np.integer],
        max_nodes: npt.ArrayLike,
        num_expected: Sequence[int],
    ) -> tuple[Int64s, Int64s]:
        """Index the new tokens and draft, for all rows of a batch.

        Args:
            request_ids: `[B]`; unknown ones are new requests.
            starts: `[B]` position of each row's first new token; a smaller value than the number of held tokens rolls back.
            counts: `[B]` number of new tokens.
            new_token_ids: `[T]`, rows concatenated.
            max_nodes: `[B]` maximum number of tokens to draft.
            num_expected: `[B]` tokens that a new request will have at least; space is allocated for them at once.

        Returns:
            drafts `[B, N]` int64, padded with -1, where N is the length of the longest draft; their lengths `[B]`.

        Raises:
            ValueError: if a row starts after the held tokens, a context is too long to index, or counts are wrong.
        """
        rows = np.empty((kernels.NUM_ROW_FIELDS, len(request_ids)), dtype=np.int64)
        lines = self._lines
        rows[kernels.STATE] = [lines[each] if each in lines else self._add(each) for each in request_ids]
        rows[kernels.START] = starts
        rows[kernels.COUNT] = counts
        rows[kernels.MAX_NODES] = max_nodes
        num_new = len(new_token_ids)
        if kernels.needs_attention(self._states, rows, num_new):
            if rows.min(initial=0) < 0 or rows[kernels.COUNT].sum() != num_new:
                raise ValueError(
                    f"a step with {num_new} new tokens but counts {rows[kernels.COUNT].tolist()}"
                )
            self._make_room(request_ids, rows, num_expected)
        if num_new > len(self._new_token_ids):
            self._new_token_ids = np.zeros(2 * num_new, dtype=np.int32)
        self._new_token_ids[:num_new] = new_token_ids

        drafts = np.empty(
            (len(request_ids), max(rows[kernels.MAX_NODES].tolist(), default=0)), dtype=np.int64
        )
        num_drafted = np.empty(len(request_ids), dtype=np.int64)
        most = kernels.run_step(
            self._pool.tokens,
            self._pool.tables,
            self._states,
            rows,
            self._new_token_ids,
            *self._settings,
            drafts,
            num_drafted,
        )
        return (drafts if most == drafts.shape[1] else drafts[:, :most].copy()), num_drafted

    def forget(self, request_ids: Iterable[str]) -> None:
        """Drop all state of these requests; unknown ids are ignored."""
        for request_id in request_ids:
            line = self._lines.pop(request_id, None)
            if line is not None:
                state = self._states[line]
                self._pool.release(int(state[kernels.OFFSET]), int(state[kernels.CAPACITY]))
                self._free_lines.append(line)

    def _add(self, request_id: str) -> int:
        line = self._free_lines.pop() if self._free_lines else len(self._lines)
        if line == len(self._states):
            self._states = np.concatenate([self._states, np.zeros_like(self._states)])
        offset = self._pool.allocate(SMALLEST_CAPACITY)
        self._states[line] = (offset, SMALLEST_CAPACITY, 0, 0, -1)
        self._lines[request_id] = line
        return line

    def _make_room(self, request_ids: Sequence[str], rows: Int64s, num_expected: Sequence[int]) -> None:
        held = self._states[rows[kernels.STATE]]
        ends = rows[kernels.START] + rows[kernels.COUNT]
        is_hole = rows[kernels.START] > held[:, kernels.NUM_TOKENS]
        if is_hole.any():
            row = int(is_hole.argmax())
            raise ValueError(
                f"request {request_ids[row]!r}: new tokens start at position {rows[kernels.START, row]}, "
                f"but only {held[row, kernels.NUM_TOKENS]} tokens were delivered before"
            )
        is_full = 4 * ends > 3 * held[:, kernels.CAPACITY]
        for row in np.flatnonzero(is_full).tolist():
            self._enlarge(int(rows[kernels.STATE, row]), max(int(ends[row]), num_expected[row]))

    def _enlarge(self, line: int, num_tokens: int) -> None:
        if num_tokens > kernels.MAX_TOKENS:
            raise ValueError(f"a context of {num_tokens} tokens is longer than prompt lookup can index")
        capacity = 1 << (5 * num_tokens // 3).bit_length()  # tables are at most 60 % full now, 75 % later
        state = self._states[line]
        state[kernels.OFFSET] = self._pool.move(
            int(state[kernels.OFFSET]), int(state[kernels.CAPACITY]), capacity, int(state[kernels.NUM_TOKENS])
        )
        state[kernels.CAPACITY] = capacity
        state[kernels.NUM_INDEXED] = 0  # the next step reindexes all tokens
