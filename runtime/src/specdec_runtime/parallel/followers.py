"""The ranks behind rank 0: processes that it starts, and that end with it."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from time import sleep

import torch
from torch._C._distributed_c10d import TCPStore

from specdec import ConfigError, EngineError, EngineOptions

TIMEOUT_VARIABLE = "SPECDEC_COLLECTIVE_TIMEOUT"
"""Environment variable with the seconds that a rank waits for the others; after that, all ranks end."""
_DEFAULT_TIMEOUT_S = 300.0
_ADDRESS = "127.0.0.1"
_TO_END_S, _BETWEEN_LOOKS_S = 10.0, 0.05
_HERE = "specdec/here/{}"
"""The key that a rank sets once it has started."""


@dataclass(frozen=True)
class RankTask:
    """What a rank is told when it is started."""

    rank: int
    size: int
    port: int
    """Of the store of rank 0."""
    options: EngineOptions
    needs_ends: bool
    """See `SplitScorer`."""


class Followers:
    """Ranks 1 and up, each a process.

    Args:
        options: those of rank 0's engine.
        size: number of ranks.
        port: of the store, see `open_store`.
        needs_ends: see `SplitScorer`.

    Raises:
        ConfigError: if an option cannot be sent to another process.
    """

    def __init__(self, options: EngineOptions, size: int, port: int, *, needs_ends: bool) -> None:
        try:
            tasks = [pickle.dumps(RankTask(rank, size, port, options, needs_ends)) for rank in range(1, size)]
        except Exception as error:
            raise ConfigError(
                f"LLM: an argument cannot be sent to the processes of tensor_parallel_size={size}: {error}"
            ) from None
        environment, self._num_threads = dict(os.environ), torch.get_num_threads()
        if "OMP_NUM_THREADS" not in environment:
            share = max(1, self._num_threads // size)
            environment["OMP_NUM_THREADS"] = str(share)
            torch.set_num_threads(share)
        command = [sys.executable, "-P", "-m", "specdec_runtime.parallel.follow"]
        # In a group of their own, since Ctrl-C is for rank 0.
        self._processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, process_group=0) for _ in tasks
        ]
        for process, task in zip(self._processes, tasks, strict=True):
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # it has ended, which the group notices
                process.stdin.write(task)
                process.stdin.flush()  # open until the end, which the process notices

    def wait(self, store: TCPStore) -> None:
        """Wait until all are there, which takes as long as their imports.

        Raises:
            EngineError: if one ends before.
        """
        while not store.check([_HERE.format(rank) for rank in range(1, len(self._processes) + 1)]):
            for rank, process in enumerate(self._processes, 1):
                if process.poll() is not None:
                    raise EngineError(
                        f"tensor parallelism: rank {rank} ended while it started, with status {process.returncode}"
                    )
            sleep(_BETWEEN_LOOKS_S)

    def end(self) -> None:
        """End the processes, whose threads are this one's again."""
        torch.set_num_threads(self._num_threads)
        for process in self._processes:
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.close()
        for process in self._processes:
            try:
                process.wait(_TO_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def open_store(size: int, port: int = 0) -> TCPStore:
    """Return the store in which the ranks find each other: rank 0's, or, with its port, another rank's view of it."""
    limit = timedelta(seconds=timeout_s())
    return TCPStore(_ADDRESS, port, size, is_master=not port, timeout=limit, wait_for_workers=False)


def be_here(store: TCPStore, rank: int) -> None:
    """Tell rank 0 that this rank has started."""
    store.set(_HERE.format(rank), "")


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
