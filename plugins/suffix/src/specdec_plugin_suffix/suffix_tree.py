"""Suffix trees in flat arrays, and the cache made of them."""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

from specdec_plugin_suffix import layout
from specdec_plugin_suffix.cache import EMPTY, SuffixDraft
from specdec_plugin_suffix.kernels import append, forget
from specdec_plugin_suffix.lookup import look_up
from specdec_plugin_suffix.request import Rules
from specdec_plugin_suffix.table import enter_all

_GROWTH = 1.5
"""Of arrays whose size need not be a power of two; what a larger one does not use yet takes no memory on most systems."""
_FIRST_SIZE = 256


class SuffixTree:
    """Counts all words of up to `depth` tokens in one text, or in several of which the oldest can be forgotten.

    Arrays and operations are described in `kernels`. A token takes time in proportion to the depth. Memory is at most two
    nodes for each token, each of 32 bytes and about 15 more to find it.

    Args:
        depth: the length of the longest words.
    """

    def __init__(self, depth: int) -> None:
        self.state = np.zeros(layout.WORDS + depth, dtype=np.int64)
        self.state[layout.FREE_BLOCKS : layout.WORDS] = -1
        self.state[layout.NODES_END] = 1
        self.nodes = np.empty((_FIRST_SIZE, layout.NUM_NODE_FIELDS), dtype=np.int32)
        self.nodes[layout.ROOT] = 0
        self.nodes[layout.ROOT, layout.BLOCK] = -1
        self.table = np.zeros(2 * _FIRST_SIZE, dtype=np.int32)
        self.blocks = np.empty(_FIRST_SIZE, dtype=np.int32)
        self.text = np.empty(_FIRST_SIZE, dtype=np.int32)

    @property
    def num_nodes(self) -> int:
        """Number of nodes without the root."""
        return int(self.state[layout.NUM_NODES])

    @property
    def num_bytes(self) -> int:
        """Size of the arrays as far as they are used."""
        nodes_end, blocks_end = self.state[[layout.NODES_END, layout.BLOCKS_END]].tolist()
        used = self.nodes[:nodes_end].nbytes + self.blocks[:blocks_end].nbytes
        return int(used + self.table.nbytes + self.text.nbytes + self.state.nbytes)

    def begin(self) -> None:
        """Let the next tokens be a new text, which can no longer be one with that before it."""
        self.state[layout.NUM_TOKENS] = 0

    def append(self, token_ids: npt.NDArray[np.int32]) -> None:
        """Append tokens `[M]` to the newest text."""
        done, state = 0, self.state
        while True:
            done = append(state, self.nodes, self.table, self.blocks, self.text, token_ids, done)
            if done == len(token_ids):
                return
            _GROW[int(state[layout.LACKING])](self)

    def forget(self, num_tokens: int) -> None:
        """Forget the oldest text, which has `num_tokens` tokens."""
        forget(self.state, self.nodes, self.table, self.blocks, self.text, num_tokens)

    def _grow_nodes(self) -> None:
        self.nodes = _grown(self.nodes, self.state[layout.NODES_END])

    def _grow_blocks(self) -> None:
        self.blocks = _grown(self.blocks, self.state[layout.BLOCKS_END])

    def _grow_table(self) -> None:
        self.table = np.zeros(2 * len(self.table), dtype=np.int32)
        enter_all(self.nodes, self.table, int(self.state[layout.NODES_END]))

    def _grow_text(self) -> None:
        """Double the ring; what lies before its oldest token now follows the end of the smaller one."""
        size, begin = len(self.text), int(self.state[layout.TEXT_BEGIN])
        self.text = np.concatenate([self.text, self.text])
        starts = self.nodes[: self.state[layout.NODES_END], layout.START]
        starts[starts < begin] += size


_GROW = {
    layout.NODES: SuffixTree._grow_nodes,
    layout.TABLE: SuffixTree._grow_table,
    layout.BLOCKS: SuffixTree._grow_blocks,
    layout.TEXT: SuffixTree._grow_text,
}


def _grown(array: npt.NDArray[np.int32], num_used: int) -> npt.NDArray[np.int32]:
    larger = np.empty((int(len(array) * _GROWTH), *array.shape[1:]), dtype=np.int32)
    larger[:num_used] = array[:num_used]
    return larger


class TreeCache:
    """Our implementation of `SuffixCache`: a tree for each running request, and one of all remembered responses.

    Args:
        depth: the longest match and draft together, in tokens.
    """

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._requests: dict[str, SuffixTree] = {}
        self._memory = SuffixTree(depth)
        """The tree of all responses."""
        self._sizes: deque[int] = deque()
        """Numbers of tokens of the responses, oldest first."""
        self._found = np.empty((2, 3, 0), dtype=np.int64)
        self._open_nodes = np.empty((0, 4), dtype=np.int64)

    def __len__(self) -> int:
        """Return the number of responses in the global tree."""
        return len(self._sizes)

    def start_request(self, request_id: str) -> None:
        """Begin a request's tree, without tokens."""
        self._requests[request_id] = SuffixTree(self._depth)

    def stop_request(self, request_id: str) -> None:
        """Drop a request's tree."""
        del self._requests[request_id]

    def append(self, request_id: str, token_ids: list[int]) -> None:
        """Append tokens to a request's text."""
        self._requests[request_id].append(np.array(token_ids, dtype=np.int32))

    def speculate(self, request_id: str, max_nodes: int, rules: Rules) -> SuffixDraft:
        """Return a draft of at most `max_nodes` tokens (1 or more) after a request's text."""
        if max_nodes > self._found.shape[2]:
            self._found = np.empty((2, 3, max_nodes), dtype=np.int64)
            self._open_nodes = np.empty((max_nodes + 2, 4), dtype=np.int64)
        own = self._requests[request_id]
        best, num_nodes, total = self._look_up(own, own, max_nodes, rules, 0.0)
        if self._sizes:
            _, num_others, total_of_others = self._look_up(self._memory, own, max_nodes, rules, best)
            if num_others:
                num_nodes, total = num_others, total_of_others
        if not num_nodes:
            return EMPTY
        token_ids, parents, counts = self._found[0, :, :num_nodes].tolist()
        return SuffixDraft(token_ids, parents, [count / int(total) for count in counts])

    def _look_up(
        self, tree: SuffixTree, own: SuffixTree, max_nodes: int, rules: Rules, best: float
    ) -> tuple[float, int, int]:
        found: tuple[float, int, int] = look_up(
            tree.state,
            tree.nodes,
            tree.table,
            tree.blocks,
            tree.text,
            own.state,
            own.text,
            tree is own,
            max_nodes,
            rules.max_spec_factor,
            rules.min_token_prob,
            rules.is_tree,
            best,
            self._found,
            self._open_nodes,
        )
        return found

    def append_response(self, token_ids: list[int], *, is_first: bool, is_last: bool) -> None:
        """Append tokens to a response: a new one with `is_first`, else the newest, which grows no more after `is_last`."""
        if is_first:
            self._memory.begin()
            self._sizes.append(0)
        self._memory.append(np.array(token_ids, dtype=np.int32))
        self._sizes[-1] += len(token_ids)

    def evict_response(self) -> None:
        """Remove the oldest response, which grows no more."""
        self._memory.forget(self._sizes.popleft())
