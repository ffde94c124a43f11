"""Threads that stay together for a whole compiled pass: dividing work among them takes a tenth of what a parallel loop does.

One thread runs the pass; at each product and attention it posts a job, of which every thread runs a part. Who posts it runs
the parts that no other thread has begun, so that it never waits for a thread that the system has put aside.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit as plain
from numba import prange

from specdec_kernels.cpu.compiled.atomics import let_others, pause, read, swap, write
from specdec_kernels.cpu.compiled.jit import njit
from specdec_kernels.cpu.compiled.jobs import run_part

_LINE = 64
_NUMBER, _JOB, _SIZE, _FAILED, _BUSY = 0, 8, 16, 24, 32
"""Bytes from a team's address to: the number of the job, 0 before the first and -1 after the last; the job's address; how many
threads there are; whether a part failed; whether a pass runs."""
_BEGUN, _ENDED = 0, 8
"""The same from a thread's line on: the number of the last job of whose part was begun, and ended."""
_PATIENCE = 2000
"""Rounds of waiting, some tens of microseconds, before other threads may have the processor."""


def make_team(num_threads: int) -> npt.NDArray[np.int64]:
    """Return memory for a team, to be used by one pass at a time."""
    room = np.zeros((num_threads + 2) * _LINE // 8, np.int64)
    start = -room.ctypes.data % _LINE // 8
    memory: npt.NDArray[np.int64] = room[start : start + (num_threads + 1) * _LINE // 8]
    memory[_SIZE // 8] = num_threads
    return memory


@njit(parallel=True, nogil=True, cache=True, error_model="numpy")
def run_with_team(team: int, job: int) -> None:
    """Run part 0 of a job, which may share jobs with the team at an address.

    Raises:
        MemoryError: if it or a shared job fails: memory is all that compiled passes can lack.
        RuntimeError: if another thread of Python runs a pass with this team.
    """
    if not swap(team + _BUSY, 0, 1):
        raise RuntimeError("a compiled model runs one pass at a time; call it from one thread")
    num_threads = size_of(team)
    for place in range(team + _LINE, team + (num_threads + 1) * _LINE, _LINE):
        write(place + _BEGUN, 0)
        write(place + _ENDED, 0)
    write(team + _FAILED, 0)
    write(team + _NUMBER, 0)
    if num_threads == 1:
        _lead(team, job)
    else:
        for thread in prange(num_threads):
            if thread == 0:
                _lead(team, job)
            else:
                _serve(team, thread)
    has_failed = read(team + _FAILED) != 0
    write(team + _BUSY, 0)
    if has_failed:
        raise MemoryError("a compiled pass found no memory")


@njit(nogil=True, error_model="numpy")
def share(team: int, job: int) -> None:
    """Have a team run a job, a part for each thread; returns once all parts are done."""
    num_threads, number = size_of(team), read(team + _NUMBER) + 1
    write(team + _JOB, job)
    write(team + _NUMBER, number)
    if run_part(job, 0, num_threads) != 0:
        write(team + _FAILED, 1)
    for thread in range(1, num_threads):
        _run_if_not_begun(team, job, number, thread, num_threads)
    for thread in range(1, num_threads):
        rounds = 0
        while read(team + (thread + 1) * _LINE + _ENDED) != number:
            rounds = _wait(rounds)


@plain(inline="always")
def part_of(count: int, part: int, num_parts: int) -> range:
    """Return which of `count` things, in order, are a part's."""
    return range(part * count // num_parts, (part + 1) * count // num_parts)


@njit(nogil=True, error_model="numpy")
def size_of(team: int) -> int:
    """Return the number of threads of a team."""
    size: int = read(team + _SIZE)
    return size


@njit(nogil=True, error_model="numpy")
def _lead(team: int, job: int) -> None:
    """Run a job that may share others, then let the team go."""
    if run_part(job, 0, 1) != 0:
        write(team + _FAILED, 1)
    write(team + _NUMBER, -1)


@njit(nogil=True, error_model="numpy")
def _serve(team: int, thread: int) -> None:
    """Run a thread's parts of all jobs until there are no more."""
    num_threads, seen, rounds = size_of(team), 0, 0
    while seen >= 0:
        number = read(team + _NUMBER)
        if number == seen:
            rounds = _wait(rounds)
            continue
        seen, rounds = number, 0
        if number > 0:
            _run_if_not_begun(team, read(team + _JOB), number, thread, num_threads)


@njit(nogil=True, error_model="numpy")
def _run_if_not_begun(team: int, job: int, number: int, thread: int, num_threads: int) -> None:
    place = team + (thread + 1) * _LINE
    if swap(place + _BEGUN, number - 1, number):
        if run_part(job, thread, num_threads) != 0:
            write(team + _FAILED, 1)
        write(place + _ENDED, number)


@plain(inline="always")
def _wait(rounds: int) -> int:
    if rounds < _PATIENCE:
        pause()
        return rounds + 1
    let_others()
    return rounds
