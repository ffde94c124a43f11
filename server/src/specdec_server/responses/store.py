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

    Every response belongs to an owner, and exists for that owner only. Room is made by the owner that uses the most.

    Args:
        max_responses: maximum number of stored responses; 0 keeps none.
        max_bytes: maximum bytes of all together.
    """

    def __init__(self, max_responses: int, max_bytes: int = MAX_BYTES) -> None:
        self._max_responses, self._max_bytes = max_responses, max_bytes
        self._shares: dict[str, _Share] = {}
        self._lock = Lock()

    def get(self, response_id: str, owner: str = "", *, is_previous: bool = False) -> Stored:
        """Return a response.

        Args:
            response_id: the id in the response.
            owner: to whom it belongs.
            is_previous: whether a request wants to continue it; changes the error.

        Raises:
            ApiError: if it is not stored.
        """
        with self._lock:
            share = self._shares.get(owner)
            if share is not None and response_id in share.stored:
                share.stored.move_to_end(response_id)
                return share.stored[response_id]
        message = (
            f"there is no response {response_id!r:.200}: it was not stored, or has made room for newer ones"
        )
        if is_previous:
            raise ApiError(f"{message}; send the whole conversation as input", 400, param="previous_response_id",
                           code="previous_response_not_found")  # fmt: skip
        raise ApiError(message, 404, code="response_not_found")

    def put(self, response: dict[str, Any], messages: Sequence[dict[str, Any]], owner: str = "") -> None:
        """Store a response in place of one with the same id and owner; evict older ones if necessary."""
        num_bytes = len(json.dumps(response)) + len(json.dumps(messages))
        with self._lock:
            share = self._shares.setdefault(owner, _Share())
            share.drop(response["id"])
            share.stored[response["id"]] = Stored(response, tuple(messages), num_bytes)
            share.num_bytes += num_bytes
            while sum(len(each.stored) for each in self._shares.values()) > self._max_responses:
                self._evict(max(self._shares, key=lambda name: len(self._shares[name].stored)))
            while sum(each.num_bytes for each in self._shares.values()) > self._max_bytes:
                self._evict(max(self._shares, key=lambda name: self._shares[name].num_bytes))

    def delete(self, response_id: str, owner: str = "") -> None:
        """Delete a response.

        Raises:
            ApiError: if it is not stored.
        """
        self.get(response_id, owner)
        with self._lock:
            if owner in self._shares:
                self._shares[owner].drop(response_id)

    def _evict(self, owner: str) -> None:
        """Drop an owner's least recently used response."""
        share = self._shares[owner]
        share.drop(next(iter(share.stored)))
        if not share.stored:
            del self._shares[owner]


class _Share:
    """The responses of one owner, the least recently used one first."""

    def __init__(self) -> None:
        self.stored: OrderedDict[str, Stored] = OrderedDict()
        self.num_bytes = 0

    def drop(self, response_id: str) -> None:
        """Remove a response, if it is stored."""
        found = self.stored.pop(response_id, None)
        self.num_bytes -= 0 if found is None else found.num_bytes
