"""The suffix trees of `arctic-inference`, which are C++."""

from __future__ import annotations

from collections import deque

from arctic_inference.suffix_decoding import SuffixDecodingCache

from specdec_plugin_suffix.cache import SuffixDraft
from specdec_plugin_suffix.request import Rules


class ArcticCache:
    """`SuffixCache` by the library's cache.

    That enters responses while they grow and evicts the oldest one when a request starts. Here every request is therefore
    removed from its global tree when it starts, and a response is a request of its own, whose key is a number.

    Args:
        depth: the longest match and draft together, in tokens.
    """

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._library = SuffixDecodingCache(depth, -1)
        self._tails: dict[str, list[int]] = {}
        self._responses: deque[int] = deque()
        self._num_begun = 0

    def __len__(self) -> int:
        """Return the number of responses in the global tree."""
        return len(self._responses)

    def start_request(self, request_id: str) -> None:
        """Begin a request's tree, without tokens."""
        self._library.start_request(request_id, [])
        self._library.evict_cached_response(request_id)
        self._tails[request_id] = []

    def stop_request(self, request_id: str) -> None:
        """Drop a request's tree."""
        self._library.stop_request(request_id)
        del self._tails[request_id]

    def append(self, request_id: str, token_ids: list[int]) -> None:
        """Append tokens to a request's text."""
        self._library.add_active_response(request_id, token_ids)
        self._tails[request_id] = (self._tails[request_id] + token_ids)[-self._depth :]

    def speculate(self, request_id: str, max_nodes: int, rules: Rules) -> SuffixDraft:
        """Return a draft of at most `max_nodes` tokens after a request's text."""
        found = self._library.speculate(
            request_id,
            self._tails[request_id],
            max_nodes,
            rules.max_spec_factor,
            0.0,
            rules.min_token_prob,
            rules.is_tree,
        )
        return SuffixDraft(found.token_ids, found.parents, found.probs)

    def append_response(self, token_ids: list[int], *, is_first: bool, is_last: bool) -> None:
        """Append tokens to a response: a new one with `is_first`, else the newest, which grows no more after `is_last`."""
        if is_first:
            self._library.start_request(self._num_begun, [])
            self._responses.append(self._num_begun)
            self._num_begun += 1
        self._library.add_active_response(self._responses[-1], token_ids)
        if is_last:
            self._library.stop_request(self._responses[-1])

    def evict_response(self) -> None:
        """Remove the oldest response, which grows no more."""
        oldest = self._responses.popleft()
        if oldest in self._library.active_requests:  # it has not come to its end
            self._library.stop_request(oldest)
        self._library.evict_cached_response(oldest)
