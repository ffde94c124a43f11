"""Store of responses that later requests can continue."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from specdec_server.errors import ApiError

MAX_BYTES = 64 * 2**20
"""Maximum bytes of stored conversations and responses, measured as JSON."""


@dataclass(frozen=True)
class Stored:
    """One response and the conversation up to its end."""

    response: dict[str, Any]
    messages: tuple[dict[str, Any], ...]
    """Without instructions, which are not carried over."""
    num_bytes: int


class ResponseStore:
    """Keeps the most recently used responses in memory; they are lost on restart.

    Args:
        max_responses: maximum number of stored responses; 0 keeps none.
        max_bytes: maximum bytes of all together.
    """

    def __init__(self, max_responses: int, max_bytes: int = MAX_BYTES) -> None:
        self._max_responses, self._max_bytes = max_responses, max_bytes
        self._stored: OrderedDict[str, Stored] = OrderedDict()
        self._num_bytes = 0
        self._lock = Lock()

    def get(self, response_id: str, *, is_previous: bool = False) -> Stored:
        """Return a response.

        Args:
            response_id: the id in the response.
            is_previous: whether a request wants to continue it; changes the error.

        Raises:
            ApiError: if it is not stored.
        """
        with self._lock:
            if response_id in self._stored:
                self._stored.move_to_end(response_id)
                return self._stored[response_id]
        message = f"there is no response {response_id!r}: it was not stored, or has made room for newer ones"
        if is_previous:
            raise ApiError(f"{message}; send the whole conversation as input", 400, param="previous_response_id",
                           code="previous_response_not_found")  # fmt: skip
        raise ApiError(message, 404, code="response_not_found")

    def put(self, response: dict[str, Any], messages: Sequence[dict[str, Any]]) -> None:
        """Store a response; evict older ones if necessary."""
        num_bytes = len(json.dumps(response)) + len(json.dumps(messages))
        with self._lock:
            self._stored[response["id"]] = Stored(response, tuple(messages), num_bytes)
            self._num_bytes += num_bytes
            while self._stored and (
                len(self._stored) > self._max_responses or self._num_bytes > self._max_bytes
            ):
                _, oldest = self._stored.popitem(last=False)
                self._num_bytes -= oldest.num_bytes

    def delete(self, response_id: str) -> None:
        """Delete a response.

        Raises:
            ApiError: if it is not stored.
        """
        self.get(response_id)
        with self._lock:
            found = self._stored.pop(response_id, None)
            self._num_bytes -= 0 if found is None else found.num_bytes
