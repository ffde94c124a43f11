"""The queue of waiting samples, and which of them is next."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Mapping
from collections.abc import Sequence as Items
from typing import TypeVar

from specdec.engine.sequence import Sequence

Key = TypeVar("Key")
_Requests = OrderedDict[str | None, deque[Sequence]]


class WaitingQueue:
    """First come, first served, and fair between clients.

    If requests name their clients, the client and then the request with the fewest running samples is served
    first. Many samples of one request thus do not keep the others out.

    Args:
        has_priorities: whether samples with a lower `priority` go before all others.
    """

    def __init__(self, *, has_priorities: bool = False) -> None:
        self.has_priorities = has_priorities
        self._clients: dict[int, OrderedDict[str | None, _Requests]] = {}
        self.num_samples = 0

    def append(self, sequence: Sequence) -> None:
        """Queue a new sample."""
        self._requests_of(sequence).setdefault(_request_of(sequence), deque()).append(sequence)
        self.num_samples += 1

    def put_back(self, sequence: Sequence) -> None:
        """Queue a sample that was next, or preempted: first of its request, which is first of its client, and that of all."""
        requests, request = self._requests_of(sequence), _request_of(sequence)
        requests.setdefault(request, deque()).appendleft(sequence)
        requests.move_to_end(request, last=False)
        self._clients[self._priority_of(sequence)].move_to_end(sequence.client, last=False)
        self.num_samples += 1

    def remove(self, sequence: Sequence) -> None:
        """Remove a sample, if it is queued."""
        priority, client, request = self._priority_of(sequence), sequence.client, _request_of(sequence)
        clients = self._clients.get(priority, OrderedDict())
        samples = clients.get(client, OrderedDict()).get(request)
        if samples is None or sequence not in samples:
            return
        samples.remove(sequence)
        self.num_samples -= 1
        if not samples:
            del clients[client][request]
        if not clients[client]:
            del clients[client]
        if not clients:
            del self._clients[priority]

    def next(self, running: Items[Sequence]) -> Sequence:
        """Return the sample that runs next; there must be one.

        Args:
            running: the samples that run now.
        """
        clients = self._clients[min(self._clients)]
        client = _least(clients, [sequence.client for sequence in running])
        requests = clients[client]
        return requests[_least(requests, [_request_of(sequence) for sequence in running])][0]

    def may_replace(self, waiting: Sequence, running: Sequence) -> bool:
        """Return whether a waiting sample may replace a running one.

        Both must name their clients, and the running one must not have higher priority.
        """
        if running.client is None or waiting.client is None:
            return False
        return not self.has_priorities or waiting.priority <= running.priority

    def _requests_of(self, sequence: Sequence) -> _Requests:
        clients = self._clients.setdefault(self._priority_of(sequence), OrderedDict())
        return clients.setdefault(sequence.client, OrderedDict())

    def _priority_of(self, sequence: Sequence) -> int:
        return sequence.priority if self.has_priorities else 0


def _request_of(sequence: Sequence) -> str | None:
    """Return the request that a sample is grouped by; samples without a client form one group."""
    return None if sequence.client is None else sequence.parent_id


def _least(waiting: Mapping[Key, object], running: list[Key]) -> Key:
    """Return the key with the fewest running samples; of equal ones, that which has waited longest."""
    if len(waiting) == 1:
        return next(iter(waiting))
    counts = Counter(running)
    for key in waiting:
        if not counts[key]:  # reached after at most `len(running)` keys
            return key
    return min(waiting, key=counts.__getitem__)
