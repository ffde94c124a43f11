"""The rank that `torchrun` assigns to this process, and how long ranks wait for each other."""

from __future__ import annotations

import os
from dataclasses import dataclass

from specdec import ConfigError

TIMEOUT_VARIABLE = "SPECDEC_COLLECTIVE_TIMEOUT"
"""Environment variable with the seconds that a rank waits for the others; after that, all ranks end."""
_DEFAULT_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class ProcessRank:
    """The rank of this process."""

    rank: int
    """Rank 0 runs the engine."""
    size: int
    """Number of processes."""
    local_rank: int
    """Rank among this machine's processes; also the index of this process's device."""


def process_rank(size: int) -> ProcessRank:
    """Return the rank of this process among the `size` processes that `torchrun` has started.

    Raises:
        ConfigError: if it was not started by `torchrun`, or with a different number of processes.
    """
    rank, started = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    line = f"`torchrun --nproc-per-node {size} your_script.py`"
    if rank is None or started is None:
        raise ConfigError(f"LLM: tensor_parallel_size={size} needs one process per rank: run {line}")
    if int(started) != size:
        raise ConfigError(
            f"LLM: tensor_parallel_size={size} does not fit the {started} processes that torchrun has started: run {line}, or "
            f"set tensor_parallel_size={started}"
        )
    return ProcessRank(int(rank), size, int(os.environ.get("LOCAL_RANK", rank)))


def timeout_s() -> float:
    """Return how many seconds a rank waits for the others in the middle of a pass.

    Raises:
        ConfigError: if `SPECDEC_COLLECTIVE_TIMEOUT` is not a positive number.
    """
    given = os.environ.get(TIMEOUT_VARIABLE)
    if given is None:
        return _DEFAULT_TIMEOUT_S
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < float("inf"):
        raise ConfigError(f"{TIMEOUT_VARIABLE}={given!r} must be a number of seconds above 0")
    return seconds
