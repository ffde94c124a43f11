"""`penalise` against core's penalties: the reference everywhere, the kernel under the interpreter and on a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from specdec import SamplingParams
from specdec.interfaces import DeviceNodes, Occurrences, RowBlock, RowOperations, Transfer
from specdec.logits.rules import edits
from specdec.logits.rules.edits import Edits, StepEdits
from specdec.logits.rules.penalties import PenaltyRule
from specdec_kernels.cuda.penalties import Counted, Text
from specdec_kernels.triton.launch import LaunchConfig
from specdec_kernels.triton.penalise import PathRows, Texts, penalise
from specdec_kernels.triton.penalise.reference import penalise_reference

# Infinities are part of the arithmetic here; the interpreter's numpy warns of them where a GPU goes on.
pytestmark = pytest.mark.filterwarnings("ignore:.* encountered in :RuntimeWarning")

VOCAB = 37
PARAMS = [
    {"repetition_penalty": 1.3, "presence_penalty": 0.4, "frequency_penalty": 0.7},
    {"presence_penalty": -1.5},
    {"repetition_penalty": 0.6, "frequency_penalty": 1.9},
    {"frequency_penalty": -0.3},
]
NODES = [(5, 7, 5, 5), (), (3,), (9, 9, 1)]
PARENTS = [(-1, 0, 0, 2), (), (-1,), (-1, -1, 1)]


class OnHost(RowOperations):
    """Operations without penalties: the host lists the changes."""

    valid_rows = multinomial = gumbel = uniforms = None  # type: ignore[assignment]  # not called


def blocks(*, is_tree: bool) -> list[RowBlock]:
    rng = np.random.default_rng(5)
    texts = [rng.integers(0, VOCAB, size).astype(np.int32) for size in (60, 1, 9, 30)]
    return [
        RowBlock(SamplingParams(**params), nodes, parents if is_tree else None, None, text, len(text) // 2)
        for params, nodes, parents, text in zip(PARAMS, NODES, PARENTS, texts, strict=True)
    ]


def problem(
    monkeypatch: pytest.MonkeyPatch, *, is_tree: bool
) -> tuple[torch.Tensor, torch.Tensor, list[Text]]:
    """Logits, the same as core lowers them on the host, and what is to be counted; one row is left alone."""
    torch.manual_seed(int(is_tree))
    logits = 3.0 * torch.randn(sum(len(nodes) + 1 for nodes in NODES), VOCAB)
    logits[7, 3], logits[3, 7], logits[6, 3] = 3e38, torch.nan, -torch.inf
    all_edits, texts, first = [], [], 0
    for block in blocks(is_tree=is_tree):
        rule, made = PenaltyRule(block.params), Edits(block.num_rows)
        rule.add_to(made, block)
        made.rows = made.rows[made.rows != 2] if first == 0 else made.rows
        all_edits.append((first, made))
        texts.append((first, made.rows, rule.occurrences(block)))
        first += block.num_rows
    expected = logits.clone()
    with monkeypatch.context() as patched:
        patched.setattr(edits, "row_operations", lambda device: OnHost())
        expected = StepEdits(all_edits, VOCAB, expected.device).make(expected)
    assert not torch.equal(expected, logits)
    return logits, expected, texts


def unread(texts: list[Text], device: torch.device, *, is_tree: bool) -> list[Text]:
    """The same with drafted nodes that are on the device; what stands behind those of a row means nothing."""
    numbers = torch.full((1 + is_tree, len(NODES), 5), VOCAB + 9)
    for part, given in zip(numbers, (NODES, PARENTS), strict=False):
        for place, nodes in zip(part, given, strict=True):
            place[: len(nodes)] = torch.tensor(nodes, dtype=torch.int64)
    made = DeviceNodes(numbers.to(device), list(map(len, NODES)), VOCAB)
    there: Any = {"nodes": (), "parents": None, "device_nodes": made}
    return [
        (first, which, each._replace(block=replace(each.block, **there, device_row=row)))
        for row, (first, which, each) in enumerate(texts)
    ]


def lowered(logits: torch.Tensor, texts: list[Text], *, is_in_place: bool = False) -> torch.Tensor:
    """Penalise; logits that are not written to stay as they are."""
    before = logits.clone()
    got = penalise(logits, *Counted(texts, Transfer()).on(logits.device), out=logits if is_in_place else None)
    assert is_in_place or torch.equal(same(logits), same(before))
    return got


@pytest.mark.parametrize("is_unread", [False, True])
@pytest.mark.parametrize("is_tree", [False, True])
def test_it_lowers_what_core_lowers(
    is_tree: bool, is_unread: bool, device: torch.device, monkeypatch
) -> None:
    logits, expected, texts = problem(monkeypatch, is_tree=is_tree)
    texts = unread(texts, device, is_tree=is_tree) if is_unread else texts
    got = lowered(logits.to(device), texts, is_in_place=is_tree)
    there = [each.block.device_nodes for _, _, each in texts]
    assert all(nodes is not None and nodes.num_outside is None for nodes in there) is is_unread
    assert torch.equal(same(got), same(expected))


def test_a_draft_without_nodes_is_not_waited_for() -> None:
    made = DeviceNodes(torch.zeros((1, 2, 3), dtype=torch.int64), [0, 0], VOCAB)
    block = RowBlock(SamplingParams(), device_nodes=made, device_row=1)
    text = Occurrences(np.zeros(1, np.int64), np.ones(1, np.float32), (1.1, 0.0, 0.0), block)
    Counted([(0, np.zeros(1, np.int64), text)], Transfer()).on(torch.device("cpu"))
    assert made.num_outside is None


def same(logits: torch.Tensor) -> torch.Tensor:
    """Logits on the host, with a number that there is not in place of NaN, which equals nothing."""
    return logits.cpu().nan_to_num(123.0, torch.inf, -torch.inf)


def given(device: torch.device) -> tuple[torch.Tensor, Texts, PathRows]:
    longs = {"dtype": torch.int64, "device": device}
    texts = Texts(
        torch.tensor([4, 2, 30, 7, 9], **longs),
        torch.tensor([0.0, 2.0, 1.0, 3.0, 1.0], device=device),
        torch.tensor([0, 3, 5], **longs),
        torch.tensor([[2.0, 1.0], [0.5, 0.25], [1.0, 3.0]], device=device),
    )
    paths = PathRows(
        torch.tensor([3, 0, 1], **longs),
        torch.tensor([0, 0, 1], **longs),
        torch.tensor([0, 0, 3], **longs),
        torch.tensor([-1, 2, 2], **longs),
        torch.tensor([2, 11, 8, 9, 9, 5], **longs),
        torch.tensor([-1, 0, 0, -7, 0, 5], **longs),
        3,
    )
    return torch.full((4, VOCAB), 6.0, device=device), texts, paths


@pytest.mark.parametrize("config", [None, LaunchConfig(1, 1), LaunchConfig(2, 1)])
def test_ids_of_the_path_count_as_output(config, device: torch.device) -> None:
    logits, texts, paths = given(device)
    logits = penalise(logits, texts, paths, config=config)
    expected = torch.full((4, VOCAB), 6.0)
    expected[3, [4, 2, 30]] = torch.tensor([3.0, 0.5, 1.5])
    expected[0, [4, 2, 30, 8]] = torch.tensor([3.0, -0.5, 1.5, 1.5])
    expected[1, [7, 9, 5]] = torch.tensor([-3.25, -3.25, 2.75])
    assert torch.equal(logits.cpu(), expected)


def test_other_rows_are_left(device: torch.device) -> None:
    logits, texts, paths = given(device)
    logits = penalise(logits, texts, PathRows(*(part[:0] for part in paths[:4]), *paths[4:]))
    assert torch.equal(logits.cpu(), torch.full((4, VOCAB), 6.0))


def test_wrong_arguments_are_named() -> None:
    logits, texts, paths = given(torch.device("cpu"))
    for name, wrong in {
        "logits": (logits.double(), texts, paths),
        "texts.counts": (logits, texts._replace(counts=texts.counts.double()), paths),
        "texts.starts": (logits, texts._replace(starts=texts.starts.float()), paths),
        "texts.penalties": (logits, texts._replace(penalties=texts.penalties[:2]), paths),
        "paths.rows": (logits, texts, paths._replace(rows=paths.rows[:1])),
        "paths.nodes": (logits, texts, paths._replace(nodes=paths.nodes[None])),
        "paths.parents": (logits, texts, paths._replace(parents=paths.parents[:2])),
        "paths.drafted": (logits, texts, paths._replace(drafted=paths.drafted.float())),
    }.items():
        with pytest.raises(ValueError, match=name):
            penalise(*wrong)


MUTANTS = {
    "changes what it only reads": ("tl.store(out_ptr + ids", "tl.store(row_ptr + ids"),
    "leaves other rows out": ("mask=own < stop), mask=own < stop)", "mask=own < stop), mask=own < 0)"),
    "forgets the path": ("tl.sum(is_same, 1).to(tl.float32)", "0.0"),
    "walks a tree as a chain": ("parent_of(parents_ptr + first, node, HAS_PARENTS)", "node - 1"),
    "takes the nodes of the first draft": ("drafted_ptr + first + node", "drafted_ptr + node"),
    "lowers what the text has twice": ("(is_known == 0) & ", ""),
    "takes the first request's penalties": ("penalties_ptr += request", "penalties_ptr += 0"),
    "lets numbers grow beyond the greatest": ("tl.where(logits > GREATEST, GREATEST, logits)", "logits"),
}  # fmt: skip


@pytest.mark.interpreter
@pytest.mark.parametrize("name", [None, *MUTANTS])
def test_a_wrong_kernel_fails(name: str | None, check_mutant, monkeypatch) -> None:
    cpu = torch.device("cpu")
    problems = [problem(monkeypatch, is_tree=is_tree) for is_tree in (False, True)]

    def check_all() -> None:
        test_ids_of_the_path_count_as_output(LaunchConfig(2, 1), cpu)
        for logits, expected, texts in problems:
            assert torch.equal(same(lowered(logits.clone(), texts)), same(expected))

    check_mutant("penalise", None if name is None else MUTANTS[name], check_all)


def test_rows_of_several_parts(device: torch.device) -> None:
    torch.manual_seed(3)
    edges = [0, 2047, 2048, 16383, 16384, 32767, 32768, 39999]
    logits, longs = torch.randn(3, 40_000), {"dtype": torch.int64}
    texts = Texts(
        torch.tensor(edges), torch.arange(8.0), torch.tensor([0, 8]), torch.tensor([[1.3], [0.5], [0.25]])
    )
    drafted, parents = torch.tensor([16384, 16385, 50_000, 39998]), torch.tensor([-1, 0, 1, 2])
    paths = PathRows(
        torch.tensor([2, 0]),
        torch.zeros(2, **longs),
        torch.zeros(2, **longs),
        torch.tensor([3, -1]),
        drafted,
        parents,
        4,
    )
    expected = torch.empty_like(logits)
    penalise_reference(logits, texts, paths, expected)
    assert (expected != logits).sum(1).tolist() == [8, 0, 10]
    given = [part.to(device) if isinstance(part, torch.Tensor) else part for part in paths]
    got = penalise(logits.to(device), Texts(*(part.to(device) for part in texts)), PathRows(*given))
    assert torch.equal(got.cpu(), expected)
