"""The token table, and the lines that running requests have in it."""

from __future__ import annotations

import random
from typing import Any, cast

import numpy as np
import pytest
import torch

from specdec.engine.request_lines import RequestLines
from specdec.engine.sequence import Sequence
from specdec.engine.step import Row
from specdec.interfaces import TokenTable
from specdec.sampling_params import SamplingParams

CPU, LONGEST = torch.device("cpu"), 24


def sequence(*token_ids: int) -> Sequence:
    given = np.array(token_ids, np.int32)
    return Sequence("a", given, SamplingParams(), seed=0, sample_index=0, max_num_tokens=LONGEST)


def held(lines: RequestLines, *sequences: Sequence) -> list[list[int]]:
    table = lines.table
    return [table.token_ids[s.line, : int(table.num_tokens[s.line])].tolist() for s in sequences]


def verdict(
    lines: RequestLines, running: list[Sequence], emitted: list[list[int]], width: int = 4
) -> list[int]:
    """Append a verdict, as a device does before the host has it; returns the accepted nodes."""
    counts = [len(tokens) - 1 for tokens in emitted]
    ids = torch.tensor([tokens + [77] * (width - len(tokens)) for tokens in emitted])
    lines.table.append(torch.tensor([s.line for s in running]), torch.tensor(counts), ids)
    return counts


def test_a_line_is_written_once_and_then_grows_with_the_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, first, second = RequestLines(TokenTable.on(CPU, 3, LONGEST)), sequence(1, 2, 3), sequence(4)
    written = list[Any]()
    write = TokenTable.write
    monkeypatch.setattr(TokenTable, "write", lambda *given: (written.append(given[2:]), write(*given)))
    running = [first, second]
    lines.place(running)
    assert held(lines, *running) == [[1, 2, 3], [4]]
    counts = verdict(lines, running, [[5, 6], [7]])
    assert held(lines, *running) == [[1, 2, 3, 5, 6], [4, 7]]
    lines.take_verdict([Row(s, 0, 0, chunk=1) for s in running], counts)
    first.append([5, 6], 1)
    second.append([7], 0)
    lines.place(running)
    assert len(written) == 1, "the device had the rest"


def test_what_the_host_kept_of_a_verdict_counts() -> None:
    lines, own = RequestLines(TokenTable.on(CPU, 1, LONGEST)), sequence(1, 2)
    lines.place([own])
    lines.take_verdict([Row(own, 0, 0, chunk=1)], verdict(lines, [own], [[5, 6, 7]]))
    own.append([5, 9], 1)  # the rest was cut, and another token came from elsewhere
    lines.place([own])
    assert held(lines, own)[0][:3] == [1, 2, 5]
    assert len(held(lines, own)[0]) == 4


def test_a_row_that_left_its_step_is_written_again() -> None:
    lines, own = RequestLines(TokenTable.on(CPU, 1, LONGEST)), sequence(1, 2)
    lines.place([own])
    lines.take_verdict([Row(own, 0, 0, chunk=0)], verdict(lines, [own], [[8, 8, 8]]))
    own.append([3], 0)
    lines.place([own])
    assert held(lines, own) == [[1, 2, 3]]


def test_lines_go_from_one_to_the_next_whatever_runs() -> None:
    rng = random.Random(5)
    lines, known = RequestLines(TokenTable.on(CPU, 3, LONGEST)), [sequence(n, n + 1) for n in range(9)]
    for _ in range(200):
        running = rng.sample(known, rng.randint(1, 3))
        lines.place(running)
        assert held(lines, *running) == [s.token_ids.tolist() for s in running]
        assert len({s.line for s in running}) == len(running)
        emitted = [[rng.randrange(50) for _ in range(rng.randint(1, 4))] for _ in running]
        counts = verdict(lines, running, emitted)
        lines.take_verdict([Row(s, 0, 0, chunk=1) for s in running], counts)
        for each, tokens in zip(running, emitted, strict=True):
            if each.num_tokens + len(tokens) <= LONGEST:
                each.append(tokens, len(tokens) - 1)


def test_more_requests_than_were_announced_get_a_larger_table() -> None:
    lines, known = RequestLines(TokenTable.on(CPU, 2, LONGEST)), [sequence(n, n + 1) for n in range(9)]
    lines.place(known[:2])
    lines.place(known)
    assert held(lines, *known) == [s.token_ids.tolist() for s in known]


def test_what_does_not_fit_is_dropped() -> None:
    lines, own = RequestLines(TokenTable.on(CPU, 2, 6)), sequence(*range(1, 6))
    lines.place([own])
    verdict(lines, [own], [[7, 8, 9, 10]])
    assert held(lines, own) == [[1, 2, 3, 4, 5, 7]]
    long = sequence(*range(10, 20))
    lines.place([long, own])
    assert held(lines, long) == [[10, 11, 12, 13, 14, 15]]
    assert held(lines, own) == [[1, 2, 3, 4, 5, 7]], "a neighbour keeps what it has"


def test_a_copy_of_lines_has_room_for_more() -> None:
    table = TokenTable.on(CPU, 3, 4)
    table.write([2, 0], [0, 0], [np.array(row, np.int32) for row in ([1, 2], [3, 4, 5, 6])])
    copy = table.of_lines([0, 2], 3)
    copy.write([0, 1], [4, 2], [np.array(row, np.int32) for row in ([7, 8, 9], [7])])
    assert copy.token_ids[0, :7].tolist() == [3, 4, 5, 6, 7, 8, 9]
    assert copy.token_ids[1, :3].tolist() == [1, 2, 7]
    assert copy.num_tokens.tolist() == [7, 3]
    assert table.num_tokens.tolist() == [4, 0, 2]
    assert cast(int, table.token_ids.shape[1]) == 5
