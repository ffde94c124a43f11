"""`list_logprobs` against what core lists: the reference everywhere, the kernel under the interpreter and on a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kernelcheck import NAN

from specdec.logits import list_logprobs as of_core
from specdec_kernels.triton.launch import LaunchConfig
from specdec_kernels.triton.list_logprobs import list_logprobs

SMALL = LaunchConfig(16, 1)
STARTS, COUNTS, LISTED = [0, 4, 5, 11], [3, 0, 5, 2], [3, 0, 2]
"""First rows of four requests, their accepted nodes, and which of them list."""


def problem(
    vocab_size: int, *, is_tree: bool, seed: int = 0
) -> tuple[torch.Tensor, list[list[int]], list[list[int]]]:
    """Logits, and per request accepted nodes and emitted tokens."""
    generator = torch.Generator().manual_seed(seed)
    logits = 4 * torch.randn(14, vocab_size, generator=generator)
    nodes = [list(range(count)) for count in COUNTS]
    if is_tree:
        nodes = [[0, 2], [], [1, 2, 4], [1]]
    tokens = [torch.randint(vocab_size, (len(path) + 1,), generator=generator).tolist() for path in nodes]
    return logits, nodes, tokens


def padded(rows: list[list[int]], width: int) -> torch.Tensor:
    return torch.tensor([[*row, *[-1] * (width - len(row))] for row in rows])


def check(vocab_size: int, count: int, device: torch.device, *, is_tree: bool, **options: Any) -> None:
    """Run into a poisoned output, and compare the tokens that there are with core's lists."""
    logits, nodes, tokens = problem(vocab_size, is_tree=is_tree)
    room = torch.full((15, vocab_size + 3), NAN).to(device)
    room[0] = 0.0  # which a wrong kernel reads, and no other memory
    wide = room[1:]
    wide[:, :vocab_size] = logits
    out = torch.full((len(LISTED), 6, 2 + 2 * count), NAN, dtype=torch.float64).to(device)
    ids = torch.tensor(STARTS).to(device), padded(nodes, 5).to(device), padded(tokens, 6).to(device)
    starts, links, emitted = ids
    given = starts, links if is_tree else None, emitted, torch.tensor(LISTED).to(device)
    assert list_logprobs(wide[:, :vocab_size], *given, count, out=out, **options) is out
    for got, request in zip(out.cpu(), LISTED, strict=True):
        rows = [STARTS[request] + node + 1 for node in (-1, *nodes[request])]
        expected = of_core(logits[rows], torch.tensor(tokens[request]), count)
        mine = got[: len(rows)]
        ids_from = 2 + count
        assert torch.equal(mine[:, 1], expected[:, 1])
        assert torch.equal(mine[:, ids_from:], expected[:, ids_from:])
        torch.testing.assert_close(mine, expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("is_tree", [False, True])
@pytest.mark.parametrize(("vocab_size", "count"), [(7, 7), (33, 0), (100, 5), (16, 1)])
def test_odd_sizes(vocab_size: int, count: int, is_tree: bool, device: torch.device) -> None:
    check(vocab_size, count, device, is_tree=is_tree)
    check(vocab_size, count, device, is_tree=is_tree, config=SMALL)


def test_half_precision(device: torch.device) -> None:
    logits = torch.tensor([[0.5, 3.0, -1.0, 2.0]], dtype=torch.bfloat16).to(device)
    one = torch.zeros(1, dtype=torch.int64, device=device)
    got = list_logprobs(logits, one, None, one[:, None] + 3, one, 3).cpu()[0, 0]
    exact = torch.log_softmax(logits.cpu().double(), 1)[0]
    assert got[:2].tolist() == pytest.approx([exact[3].item(), 2], abs=1e-6)
    assert got[2:5].tolist() == pytest.approx(exact[[1, 3, 0]].tolist(), abs=1e-6)
    assert got[5:].tolist() == [1, 3, 0]


def test_equal_and_forbidden_ids_come_in_their_order(device: torch.device) -> None:
    low = -torch.inf
    logits = torch.tensor([[1.0, low, 2.0, 2.0, low, 1.0] + [low] * 20]).to(device)
    one = torch.zeros(1, dtype=torch.int64, device=device)
    got = list_logprobs(logits, one, None, one[:, None] + 5, one, 8, config=SMALL).cpu()[0, 0]
    assert got[1] == 3
    assert got[10:].tolist() == [2, 3, 0, 5, 1, 4, 6, 7]
    assert got[6:10].tolist() == [low] * 4


@pytest.mark.parametrize("config", [LaunchConfig(128, 2), LaunchConfig(128, 16)], ids=str)
def test_every_configuration(config: LaunchConfig, device: torch.device) -> None:
    check(70, 3, device, is_tree=True, config=config)


def test_nothing_listed(device: torch.device) -> None:
    none = torch.zeros(0, dtype=torch.int64, device=device)
    one = torch.zeros(1, dtype=torch.int64, device=device)
    assert list_logprobs(torch.zeros(1, 8, device=device), one, None, one[:, None], none, 2).shape == (
        0,
        1,
        6,
    )


ONES, TWO = torch.ones(2, dtype=torch.int64), torch.ones((2, 3), dtype=torch.int64)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"count": 9}, "count=9 must be between 0 and 8"),
        ({"token_ids": ONES}, "token_ids"),
        ({"token_ids": TWO.float()}, "token_ids"),
        ({"row_starts": ONES[:1]}, "row_starts"),
        ({"nodes": TWO}, "nodes"),
        ({"listed": TWO}, "listed"),
        ({"out": torch.zeros(2, 3, 6)}, "out"),
    ],
)
def test_wrong_arguments_are_named(changes: dict[str, Any], message: str) -> None:
    given = {
        "logits": torch.zeros(6, 8), "row_starts": ONES, "nodes": TWO[:, :2], "token_ids": TWO, "listed": ONES, "count": 2,
    }  # fmt: skip
    with pytest.raises(ValueError, match=message):
        list_logprobs(**(given | changes))


def test_configurations() -> None:
    with pytest.raises(ValueError, match="block=48"):
        LaunchConfig(48, 4)


MUTANTS = {
    "takes the row before": (".to(tl.int64) + 1 + node", ".to(tl.int64) + node"),
    "counts equal ones": ("(logits > chosen)", "(logits >= chosen)"),
    "forgets the other tiles": ("total += tl.exp", "total = tl.exp"),
    "counts ranks from 0": ("tl.sum(above, 0) + 1", "tl.sum(above, 0)"),
    "lists the best again": ("(ids > last_id)", "(ids >= last_id)"),
    "takes the last of equal ones": ("| (highest > found)", "| (highest >= found)"),
    "leaves out equal ones": ("(logits == last) &", "(logits != logits) &"),
    "swaps requests": ("tl.load(listed_ptr + tl.program_id(0))", "tl.program_id(0)"),
}


@pytest.mark.interpreter
@pytest.mark.parametrize("name", [None, *MUTANTS])
def test_a_wrong_kernel_fails(name: str | None, check_mutant) -> None:
    cpu = torch.device("cpu")

    def check_all() -> None:
        check(40, 3, cpu, is_tree=True, config=SMALL)
        test_equal_and_forbidden_ids_come_in_their_order(cpu)

    check_mutant("list_logprobs", None if name is None else MUTANTS[name], check_all)
