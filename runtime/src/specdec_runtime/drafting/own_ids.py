"""The ids of a request's own text that the short output projection of a draft does not name."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specdec.interfaces import TokenIds

Int64s = npt.NDArray[np.int64]

_MOST_IDS = 1024
"""Most ids of one request, the newest ones."""
_NONE = np.empty(0, np.int64)


class OwnIds:
    """Finds in the texts of requests which ids beside the named ones may come again.

    Args:
        named_ids: `[V']` the target's ids that the draft names for every request.
        vocab_size: V, the target's vocabulary size.
    """

    def __init__(self, named_ids: Int64s, vocab_size: int) -> None:
        self._is_named = np.zeros(vocab_size, np.bool_)
        self._is_named[named_ids] = True
        self._found: dict[str, tuple[int, Int64s]] = {}

    def of(self, request_id: str, token_ids: TokenIds) -> Int64s:
        """Return the ascending ids `[E]` of a request's text that are not named; the text only grows."""
        num_read, found = self._found.get(request_id, (0, _NONE))
        if num_read < len(token_ids):
            new = token_ids[num_read:]
            new = new[~self._is_named[new]]
            if len(new):
                found = np.union1d(found, new.astype(np.int64))
            if len(found) > _MOST_IDS:
                others = token_ids[~self._is_named[token_ids]]
                found = np.unique(others[-_MOST_IDS:].astype(np.int64))
            self._found[request_id] = len(token_ids), found
        return found

    def drop(self, request_id: str) -> None:
        """Drop what was found for a request; unknown requests are ignored."""
        self._found.pop(request_id, None)
