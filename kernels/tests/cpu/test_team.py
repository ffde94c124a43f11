"""Threads that share the work of a pass: every part runs once, whoever is there to run it, and failures are told."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from numba import njit

from specdec_kernels.cpu.compiled.jobs import job_of, run_part
from specdec_kernels.cpu.compiled.team import make_team, run_with_team, share
from specdec_kernels.cpu.compiled.threads import is_available

assert is_available()
FAILS, DIES = -1, -2


@njit(nogil=True)
def _add(out, numbers, amount, part, num_parts):
    """Add an amount to a part of the numbers; counts in `out` how often each part ran."""
    if amount == FAILS and part == num_parts - 1:
        raise MemoryError
    for i in range(part * numbers.size // num_parts, (part + 1) * numbers.size // num_parts):
        numbers[i] += amount
    out[part] += 1


@njit(nogil=True)
def _lead(team, out, numbers, amount, times, part, num_parts):
    """Share a job some times; each time all numbers must be equal afterwards."""
    for i in range(times):
        share(team, job_of(_add, (out, numbers, amount)))
        if amount > 0:
            for number in numbers:
                if number != (i + 1) * amount:
                    out[-1] += 1
    if amount == DIES:
        raise MemoryError


@njit(nogil=True)
def _run(team, out, numbers, amount, times):
    run_with_team(team, job_of(_lead, (team, out, numbers, amount, times)))


def run(num_threads: int, amount: int, times: int, team=None) -> tuple[np.ndarray, np.ndarray]:
    """Return how often each part ran, with the number of false sums last, and the numbers."""
    team = make_team(num_threads) if team is None else team
    out, numbers = np.zeros(num_threads + 1, np.int64), np.zeros(100, np.int64)
    _run(team.ctypes.data, out, numbers, amount, times)
    return out, numbers


@pytest.mark.parametrize("num_threads", [1, 2, 3, 8])
def test_each_part_runs_once_before_the_next_job(num_threads) -> None:
    """Also with more threads than processors, or than numba gives: who shares a job runs what nobody has begun."""
    out, numbers = run(num_threads, 3, 2000)
    assert out.tolist() == [2000] * num_threads + [0]
    assert (numbers == 6000).all()


def test_a_team_alone_shares_without_gathering() -> None:
    @njit
    def alone(team, out, numbers):
        share(team, job_of(_add, (out, numbers, 2)))
        return run_part(job_of(_add, (out, numbers, 1)), 0, 1)

    out, numbers = np.zeros(2, np.int64), np.zeros(10, np.int64)
    assert alone(make_team(1).ctypes.data, out, numbers) == 0
    assert out.tolist() == [2, 0]
    assert (numbers == 3).all()


@pytest.mark.parametrize(("amount", "times"), [(FAILS, 5), (DIES, 5), (DIES, 0)])
def test_what_fails_is_told_and_the_team_goes_on(amount, times) -> None:
    team = make_team(2)
    for _ in range(20):
        with pytest.raises(MemoryError, match="compiled pass"):
            run(2, amount, times, team)
        assert run(2, 1, 10, team)[0].tolist() == [10, 10, 0]


def test_teams_of_several_threads_do_not_disturb_each_other() -> None:
    """Six threads run at the same time, each with a team of three, on fewer processors."""
    results = []

    def work() -> None:
        results.append(run(3, 1, 3000)[0].tolist())

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert results == [[3000, 3000, 3000, 0]] * 6


def test_a_team_runs_one_pass_at_a_time() -> None:
    @njit
    def inner(team, out, numbers, part, num_parts):
        _run(team, out, numbers, 1, 1)

    @njit
    def outer(team, out, numbers):
        run_with_team(team, job_of(inner, (team, out, numbers)))

    team, out, numbers = make_team(2), np.zeros(3, np.int64), np.zeros(10, np.int64)
    with pytest.raises(MemoryError):  # what the inner call raises ends the pass
        outer(team.ctypes.data, out, numbers)
    assert not out.any()
    assert run(2, 1, 5, team)[0].tolist() == [5, 5, 0]


def run_with_threads(num_threads: int, *files: str) -> None:
    """Run tests in a process that has threads; pytest's own has one."""
    environment = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), str(num_threads))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n0",
        "-m",
        "not slow and not full",
        "-k",
        "not with_threads",
        *files,
    ]
    folder = Path(__file__).parent
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


@pytest.mark.full
def test_the_same_with_threads() -> None:
    run_with_threads(3, Path(__file__).name, "test_draw.py")


@pytest.mark.slow
def test_products_attention_and_passes_with_threads() -> None:
    run_with_threads(
        2, "test_attention_work.py", "test_attended_rows.py", "test_quantized.py", "test_stack.py"
    )
