"""`move_rows` against the numbers that the host would send had it read the verdict: the reference, and the kernel."""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

import pytest
import torch

from specdec_kernels.triton.launch import LaunchConfig
from specdec_kernels.triton.move_rows import NUM_GROWING, PassRows, move_rows

COLUMNS, COUNTS_AT, TOKENS_AT, NUM_ROWS = 5, 40, 52, 16
GROWING_AT = [4, 12]
MEMORY = 7_000 + torch.arange(120)
"""Around the verdict and what grows stands what must stay as it is."""


class Request(NamedTuple):
    """One request of a pass."""

    first_slot: int
    num_cached: int
    num_rows: int
    verdict_row: int
    """-1 for one that does not move."""


REQUESTS = [Request(64, 9, 4, 2), Request(512, 30, 1, 0), Request(16, 0, 3, -1), Request(96, 5, 6, 1)]


def passed(requests: list[Request], counts: list[int], *, is_read: bool) -> tuple[PassRows, torch.Tensor]:
    """The numbers of a pass with padding, and the memory: as they are sent, or as they would be if the verdict was read."""
    memory = MEMORY.clone()
    memory[COUNTS_AT : COUNTS_AT + len(counts)] = torch.tensor(counts)
    positions, slots, lengths, sources = [], [], [], list(range(NUM_ROWS))
    starts = [*accumulate((each.num_rows for each in requests), initial=0)]
    for index, each in enumerate(requests):
        count = counts[each.verdict_row] if is_read and each.verdict_row >= 0 else 0
        first = each.num_cached + count
        positions += range(first, first + each.num_rows)
        slots += range(each.first_slot + first, each.first_slot + first + each.num_rows)
        lengths.append(first + each.num_rows)
        if is_read and each.verdict_row >= 0:
            sources[starts[index]] = TOKENS_AT + each.verdict_row * COLUMNS + count
        for place in GROWING_AT:
            memory[place + index] = 300 * place + each.num_cached + count
    rows = [0] * (NUM_ROWS - len(positions))
    numbers = positions + rows, slots + [-1] * len(rows), sources, starts + starts[-1:], [*lengths, 0]
    moved = torch.tensor([*(each.verdict_row for each in requests), -1])
    verdict = torch.tensor([COUNTS_AT, TOKENS_AT, COLUMNS, *GROWING_AT])
    assert len(GROWING_AT) == NUM_GROWING
    return PassRows(*map(torch.tensor, numbers), moved, verdict), memory


def check(counts: list[int], device: torch.device, config: LaunchConfig | None = None) -> None:
    given, memory = passed(REQUESTS, counts, is_read=False)
    rows, there = PassRows(*(part.to(device).clone() for part in given)), memory.to(device)
    move_rows(rows, there, config=config)
    expected, known = passed(REQUESTS, counts, is_read=True)
    for name, ours, theirs in zip(PassRows._fields, rows, expected, strict=True):
        assert ours.tolist() == theirs.tolist(), name
    assert there.tolist() == known.tolist()


COUNTS = [[0, 0, 0], [1, 4, 3], [3, 0, 1]]


@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_it_writes_what_the_host_would_send(counts: list[int], device: torch.device) -> None:
    check(counts, device)


def test_what_does_not_grow_has_no_place(device: torch.device) -> None:
    given, memory = passed(REQUESTS, COUNTS[1], is_read=False)
    rows, there = PassRows(*(part.to(device).clone() for part in given)), memory.to(device)
    rows.verdict[3:] = -1
    move_rows(rows, there)
    assert there.tolist() == memory.tolist()
    assert rows.positions[0] == given.positions[0] + COUNTS[1][2]


def test_wrong_arguments_are_named() -> None:
    rows, memory = passed(REQUESTS, COUNTS[0], is_read=False)
    for name, wrong in {
        "rows.slots": rows._replace(slots=rows.slots[:3]),
        "rows.query_starts": rows._replace(query_starts=rows.query_starts[1:]),
        "rows.verdict_rows": rows._replace(verdict_rows=rows.verdict_rows.int()),
        "rows.verdict": rows._replace(verdict=rows.verdict[:4]),
    }.items():
        with pytest.raises(ValueError, match=name):
            move_rows(wrong, memory)
    with pytest.raises(ValueError, match="memory"):
        move_rows(rows, memory.int())


MUTANTS = {
    "moves what does not": ("if row >= 0:", "if row >= -1:"),
    "leaves slots": ("slots + count", "slots"),
    "moves one row": ("range(first, end, BLOCK_ROWS)", "range(first, first + 1, BLOCK_ROWS)"),
    "moves rows of others": ("is_own = rows < end", "is_own = rows < end + 1"),
    "takes the first token": ("tl.load(verdict_ptr + 2) + count", "tl.load(verdict_ptr + 2)"),
    "forgets an array": ("range(3, 3 + NUM_GROWING)", "range(3, 2 + NUM_GROWING)"),
    "grows by nothing": ("tl.load(number_ptr) + count", "tl.load(number_ptr)"),
}  # fmt: skip


@pytest.mark.interpreter
@pytest.mark.parametrize("name", [None, *MUTANTS])
def test_a_wrong_kernel_fails(name: str | None, check_mutant) -> None:
    cpu = torch.device("cpu")

    def check_all() -> None:
        test_what_does_not_grow_has_no_place(cpu)
        for counts in COUNTS:
            check(counts, cpu, LaunchConfig(2))

    check_mutant("move_rows", None if name is None else MUTANTS[name], check_all)
