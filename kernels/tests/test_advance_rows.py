"""`advance_rows` against the numbers that the host would send: the reference everywhere, the kernel under the interpreter and
on a GPU."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch

from specdec_kernels.triton import LoopRows, Masks, advance_rows
from specdec_kernels.triton.advance_rows import NO_MASKS
from specdec_kernels.triton.launch import LaunchConfig

COLUMNS, AT = 5, 3
"""Columns of the emitted tokens, and the place of the counts."""
MEMORY = 7_000 + torch.arange(AT + 9 + 4 * COLUMNS)
"""Around the verdict stands what no loop may read."""


class Request(NamedTuple):
    """One request before a draft."""

    first_slot: int
    depth: int
    cached: int
    """Rows in the cache once the new ones have run."""
    next_position: int
    new: list[int]
    end: int = 99


def packed(requests: list[Request], most_new: int, *, is_due: bool, masks: Masks = NO_MASKS) -> LoopRows:
    """The numbers of a loop for one request more than there are, with padding, as the host sends them."""
    size = len(requests) + 1
    num_rows, num_requests = size * (most_new + masks.most) + 2, size + 2
    ids, positions, slots, starts, last, lengths = [], [], [], [0], [], []
    for each in requests:
        count = each.depth + masks.num_more if masks.most else 0
        places = range(each.cached - len(each.new), each.cached + count)
        last.append(len(ids) + len(each.new) - 1)
        ids, positions = ids + each.new + [masks.token_id] * count, [*positions, *places]
        slots += [each.first_slot + place for place in places]
        starts.append(len(ids))
        lengths.append(each.cached + count)

    def padded(numbers: list[int], count: int, padding: int = 0) -> torch.Tensor:
        return torch.tensor(numbers + [padding] * (count - len(numbers)))

    cached = [each.cached for each in requests]
    return LoopRows(
        padded(ids, num_rows),
        padded(positions, num_rows),
        padded(slots, num_rows, -1),
        padded(starts, num_requests + 1, len(ids)),
        padded(lengths, num_requests),
        padded(last, num_rows),
        padded(cached, size),
        padded([each.next_position for each in requests], size),
        padded([each.first_slot for each in requests], size),
        padded([each.depth for each in requests], size),
        padded([each.end for each in requests], size),
        torch.tensor([int(is_due), AT, AT + 6, COLUMNS]),
    )


def verdict(counts: list[int]) -> torch.Tensor:
    """The memory with accepted nodes of each request, and the tokens 100, 101, ... of the first, 200, ... of the second."""
    memory = MEMORY.clone()
    memory[AT : AT + len(counts)] = torch.tensor(counts)
    for request, count in enumerate(counts):
        start = AT + 6 + request * COLUMNS
        memory[start : start + count + 1] = 100 * (request + 1) + torch.arange(count + 1)
    return memory


def after(requests: list[Request], counts: list[int], most_new: int) -> list[Request]:
    """Requests after a verdict; of drafted rows all but the last stay (a model's), all (the target's) or none (a head's)."""
    found = []
    for index, (each, count) in enumerate(zip(requests, counts, strict=True)):
        left = {1: count, 2: min(count, each.depth - 1)}.get(most_new, 0)
        tokens = [100 * (index + 1) + place for place in range(count + 1)]
        moved = each.cached + count + 1
        position = each.next_position + count + 1
        depth = max(1, min(each.depth, each.end - position - 1))
        found.append(each._replace(cached=moved, next_position=position, new=tokens[left:], depth=depth))
    return found


REQUESTS = [Request(16, 4, 9, 10, [5]), Request(512, 1, 30, 31, [6]), Request(64, 3, 1, 2, [7], 8)]


def check(
    most_new: int,
    counts: list[int],
    device: torch.device,
    config: LaunchConfig | None = None,
    masks: Masks = NO_MASKS,
) -> None:
    requests = [REQUESTS[0]._replace(new=[5, 8][:most_new]), *REQUESTS[1:]]
    given = packed(requests, most_new, is_due=True, masks=masks)
    rows = LoopRows(*(part.to(device).clone() for part in given))
    advance_rows(rows, verdict(counts).to(device), most_new, masks=masks, config=config)
    expected = packed(after(requests, counts, most_new), most_new, is_due=True, masks=masks)
    for name, ours, theirs in zip(LoopRows._fields, rows, expected, strict=True):
        assert ours.tolist() == theirs.tolist(), name


COUNTS = [[0, 0, 0], [4, 1, 3], [2, 0, 3], [0, 1, 1]]


@pytest.mark.parametrize("counts", COUNTS, ids=str)
@pytest.mark.parametrize("most_new", [1, 2, 5])
@pytest.mark.sampled(5, slow=0)
def test_it_writes_what_the_host_would_send(most_new: int, counts: list[int], device: torch.device) -> None:
    check(most_new, counts, device)


MASKS = [Masks(77, -1, 3), Masks(78, 0, 4)]


@pytest.mark.parametrize("counts", COUNTS, ids=str)
@pytest.mark.parametrize("masks", MASKS, ids=str)
@pytest.mark.parametrize("most_new", [1, 5])
@pytest.mark.sampled(6, slow=0)
def test_masks_follow_new_tokens(
    most_new: int, masks: Masks, counts: list[int], device: torch.device
) -> None:
    check(most_new, counts, device, masks=masks)


def test_numbers_that_were_sent_stay_once(device: torch.device) -> None:
    given = packed(REQUESTS, 5, is_due=False)
    rows = LoopRows(*(part.to(device).clone() for part in given))
    advance_rows(rows, verdict([1, 1, 1]).to(device), 5)
    for name, ours, before in zip(LoopRows._fields[:-1], rows, given, strict=False):
        assert torch.equal(ours.cpu(), before), name
    assert rows.verdict.tolist() == [1, AT, AT + 6, COLUMNS]


def test_padding_stays_padding(device: torch.device) -> None:
    given = packed([], 4, is_due=True)
    rows = LoopRows(*(part.to(device).clone() for part in given))
    advance_rows(rows, MEMORY.to(device), 4)
    for name, ours, before in zip(LoopRows._fields, rows, given, strict=True):
        assert torch.equal(ours.cpu(), before), name


def test_wrong_arguments_are_named() -> None:
    rows = packed(REQUESTS, 2, is_due=True)
    for name, wrong in {
        "rows.positions": rows._replace(positions=rows.positions[:3]),
        "rows.query_starts": rows._replace(query_starts=rows.query_starts[1:]),
        "rows.depths": rows._replace(depths=rows.depths.int()),
        "rows.verdict": rows._replace(verdict=rows.verdict[:3]),
    }.items():
        with pytest.raises(ValueError, match=name):
            advance_rows(wrong, MEMORY, 2)
    few = rows._replace(context_lens=rows.context_lens[:2], query_starts=rows.query_starts[:3])
    with pytest.raises(ValueError, match=r"rows\.context_lens must have at least 4"):
        advance_rows(few, MEMORY, 2)
    with pytest.raises(ValueError, match="memory"):
        advance_rows(rows, MEMORY.int(), 2)


MUTANTS = {
    "always advances": ("if is_due > 0:", "if is_due > -1:"),
    "forgets a row that stays": ("tl.maximum(depths + 1 - most_new, 0)", "tl.maximum(depths - most_new, 0)"),
    "reads one column less": ("tl.load(verdict_ptr + 3) + num_left", "(tl.load(verdict_ptr + 3) - 1) + num_left"),
    "leaves old rows": ("(rows >= total) &", "(rows > total) &"),
    "goes as deep as before": ("tl.minimum(depths, room)", "depths"),
    "forgets masks": ("range(most_masks)", "range(0)"),
    "masks as deep as before": ("next_depths + num_more", "depths + num_more"),
    "counts from the position before": ("other=0) + counts + 1", "other=0) + counts"),
}  # fmt: skip


@pytest.mark.interpreter
@pytest.mark.parametrize("name", [None, *MUTANTS])
def test_a_wrong_kernel_fails(name: str | None, check_mutant) -> None:
    cpu = torch.device("cpu")

    def check_all() -> None:
        test_numbers_that_were_sent_stay_once(cpu)
        for most_new in (1, 2, 5):
            for counts in COUNTS:
                check(most_new, counts, cpu, LaunchConfig(4))
        for masks in MASKS:
            check(1, COUNTS[2], cpu, LaunchConfig(4), masks)
            check(5, COUNTS[2], cpu, LaunchConfig(4), masks)

    check_mutant("advance_rows", None if name is None else MUTANTS[name], check_all)
