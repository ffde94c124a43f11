"""The numbers of recorded passes, and the verdict that stands beside them until the next pass."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple
from weakref import WeakValueDictionary

import torch

NUM_NUMBERS = 2**18
"""Numbers of a pass, with what is sent along, such as the texts of penalties."""


class Places(NamedTuple):
    """Where a verdict is in the memory, as offsets."""

    num_accepted: int
    token_ids: int
    num_columns: int
    """Of `token_ids`."""
    row_starts: int = -1
    """First row of each request in the pass; -1 if they are elsewhere."""
    nodes: int = -1
    """Accepted nodes of trees, of which there is one column less; -1 for chains."""


class Judged(NamedTuple):
    """A verdict that the host has read, and that is still on the device."""

    num_accepted: Sequence[int]
    """`[B]` accepted nodes."""
    token_ids: Sequence[Sequence[int]]
    """`[B, columns]` emitted tokens, and anything behind them."""
    places: Places
    """Where the memory has these."""


class PassMemory:
    """One tensor for the numbers of all recorded passes of a runner, which run one after another.

    Verification writes its results behind drafted nodes there, where the next draft loop finds them, or the next pass.

    Args:
        device: its device.
    """

    def __init__(self, device: torch.device) -> None:
        self.numbers = torch.empty(NUM_NUMBERS, dtype=torch.int64, device=device)
        self.judged: Judged | None = None
        """None while the memory has no verdict, or one that the host does not know."""
        self.room: torch.Tensor | None = None
        """`[M]` the part that the last pass leaves free, unless it has drafted nodes: the next one does not write there."""
        self.states: torch.Tensor | None = None
        """`[N, R, H]` what the last pass leaves for proposers that read states; None if it leaves nothing."""
        self.next_loop: Callable[[Places, Sequence[int]], None] | None = None
        """Called once a verdict is on its way, with where it is and the nodes of each request: begins the next draft."""
        _MEMORIES[self.numbers.untyped_storage().data_ptr()] = self


class _OfThread(threading.local):
    """Memories of targets, by device."""

    def __init__(self) -> None:
        self.by_device: WeakValueDictionary[torch.device, PassMemory] = WeakValueDictionary()


_MEMORIES: WeakValueDictionary[int, PassMemory] = WeakValueDictionary()
"""By address."""
_AWAITED = _OfThread()
"""Those that draft loops wait for, recorded before the target of the same engine."""
_NEWEST = _OfThread()
"""Those of targets that a thread prepared last: it then prepares the draft loops of the same engine."""


def memory_of(numbers: torch.Tensor) -> PassMemory | None:
    """Return the memory that a tensor is a view of, if it is one."""
    return _MEMORIES.get(numbers.untyped_storage().data_ptr())


def await_target(device: torch.device) -> PassMemory:
    """Return the memory of the target whose passes this thread records next, for loops that are recorded before."""
    memory = _AWAITED.by_device.get(device)
    if memory is None:
        memory = _AWAITED.by_device[device] = PassMemory(device)
    return memory


def target_memory(device: torch.device) -> PassMemory:
    """Return the memory of a target whose passes are recorded now; that which draft loops wait for, if any do."""
    memory = _AWAITED.by_device.pop(device, None)
    memory = PassMemory(device) if memory is None else memory
    _NEWEST.by_device[device] = memory
    return memory


def take_newest(device: torch.device) -> PassMemory | None:
    """Return the memory of the target whose passes this thread recorded last; None if that was returned before."""
    return _NEWEST.by_device.pop(device, None)
