"""`greedy_verify` against plain Python: the reference everywhere, the kernel under the interpreter and on a GPU."""

import pytest
import torch
from kernelcheck import POISON

from specdec_kernels import ChainVerdict, greedy_verify
from specdec_kernels.greedy_verify.config import LaunchConfig


def naive(logits, draft_token_ids, row_starts, num_nodes) -> tuple[list[int], list[list[int]]]:
    """What `greedy_verify` promises, one token at a time."""
    counts, rows = [], []
    width = draft_token_ids.shape[1]
    for draft, start, nodes in zip(
        draft_token_ids.tolist(), row_starts.tolist(), num_nodes.tolist(), strict=True
    ):
        emitted: list[int] = []
        for depth in range(nodes + 1):
            row = [x if x == x else -float("inf") for x in logits[start + depth].tolist()]
            emitted.append(row.index(max(row)))
            if depth == nodes or draft[depth] != emitted[depth]:
                break
        counts.append(len(emitted) - 1)
        rows.append(emitted + [-1] * (width + 1 - len(emitted)))
    return counts, rows


def poisoned(num_requests: int, width: int, device: torch.device) -> ChainVerdict:
    shape = (num_requests, width + 1)
    return ChainVerdict(
        torch.full((num_requests,), POISON, device=device), torch.full(shape, POISON, device=device)
    )


def check(logits, draft_token_ids, row_starts, num_nodes, device, **options) -> ChainVerdict:
    """Run on `device` into poisoned outputs, compare with `naive`, and return what came out."""
    inputs = (logits, draft_token_ids, row_starts, num_nodes)
    expected = naive(*inputs)
    out = poisoned(*draft_token_ids.shape, device)
    result = greedy_verify(*(tensor.to(device) for tensor in inputs), out=out, **options)
    assert result is out
    assert (out.num_accepted.tolist(), out.token_ids.tolist()) == expected
    return out


def drafts(logits: torch.Tensor, width: int, standing: list[int], nodes: list[int]):
    """Chains whose first `standing[b]` tokens are the best ones; rows of a request follow each other."""
    vocab_size = logits.shape[1]
    best = torch.tensor([row.index(max(row)) for row in logits.tolist()])
    draft = torch.full((len(nodes), width), -1)
    row_starts, start = [], 0
    for b, count in enumerate(nodes):
        draft[b, :count] = best[start : start + count]
        if standing[b] < count:
            draft[b, standing[b]] = (draft[b, standing[b]] + 1) % vocab_size if vocab_size > 1 else -1
        row_starts.append(start)
        start += count + 1
    assert start <= len(logits)
    return draft, torch.tensor(row_starts), torch.tensor(nodes)


def sizes(test):
    vocab_sizes = [1, 32, 8193, 50257, pytest.param(151936, marks=pytest.mark.full)]
    return pytest.mark.parametrize("vocab_size", vocab_sizes)(
        pytest.mark.parametrize("width", [0, 1, 7])(test)
    )


@sizes
def test_odd_sizes(vocab_size: int, width: int, device: torch.device) -> None:
    torch.manual_seed(vocab_size + width)
    nodes = [width, 0, width // 2, width]
    standing = [width, 0, width // 2, max(0, width - 3)]
    logits = torch.randn(sum(nodes) + len(nodes), vocab_size)
    out = check(logits, *drafts(logits, width, standing, nodes), device)
    assert out.num_accepted.tolist() == standing


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_other_types(dtype: torch.dtype, device: torch.device) -> None:
    torch.manual_seed(1)
    logits = torch.randn(8, 1000).to(dtype)
    draft, row_starts, nodes = drafts(logits, 3, [3, 1], [3, 3])
    check(logits, draft.int(), row_starts.int(), nodes.int(), device)


def test_float64_is_compared_as_float64(device: torch.device) -> None:
    logits = torch.ones(1, 40, dtype=torch.float64)
    logits[0, 33] += 1e-12
    out = check(logits, torch.empty((1, 0), dtype=torch.int64), torch.tensor([0]), torch.tensor([0]), device)
    assert out.token_ids.tolist() == [[33]]


@pytest.mark.parametrize("block_v", [16, 64])
def test_ties_go_to_the_lowest_id_within_and_across_tiles(block_v: int, device: torch.device) -> None:
    logits = torch.full((4, 200), -1.0)
    logits[0, [5, 6]] = 2.0  # within a tile
    logits[1, [15, 16, 199]] = 2.0  # on both sides of a border
    logits[2, [130, 64]] = 2.0  # three tiles apart
    config = LaunchConfig(block_v, num_warps=4)
    out = check(
        logits, torch.tensor([[5, 15, 64]]), torch.tensor([0]), torch.tensor([3]), device, config=config
    )
    assert out.token_ids.tolist() == [[5, 15, 64, 0]]


def test_nan_never_wins_and_rows_without_a_number_give_id_0(device: torch.device) -> None:
    logits = torch.full((4, 70), -3.0)
    logits[0, [2, 69]] = torch.tensor([float("nan"), 1.0])
    logits[1] = float("nan")
    logits[2] = -float("inf")
    logits[3, 68] = float("inf")
    out = check(logits, torch.tensor([[69, 0, 0]]), torch.tensor([0]), torch.tensor([3]), device)
    assert out.token_ids.tolist() == [[69, 0, 0, 68]]


def test_views_with_an_offset_and_requests_out_of_order(device: torch.device) -> None:
    torch.manual_seed(2)
    logits = torch.randn(9, 300)[:, 7:240]
    assert not logits.is_contiguous()
    draft, row_starts, nodes = drafts(logits, 5, [2, 3], [3, 4])
    wide = torch.full((2, 9), 7)
    wide[:, 2:7] = draft
    order = torch.tensor([1, 0])
    out = check(logits, wide[:, 2:7][order], row_starts[order], nodes[order], device)
    assert out.num_accepted.tolist() == [3, 2]


def test_a_drafted_id_that_is_no_token_does_not_stand(device: torch.device) -> None:
    logits = torch.eye(4)
    draft = torch.tensor([[0, 99, 2], [0, -1, 2]])
    out = check(logits, draft, torch.tensor([0, 0]), torch.tensor([3, 3]), device)
    assert out.token_ids.tolist() == [[0, 1, -1, -1]] * 2


def test_no_requests(device: torch.device) -> None:
    empty = torch.empty(0, dtype=torch.int64, device=device)
    result = greedy_verify(torch.empty((0, 8), device=device), empty.reshape(0, 3), empty, empty)
    assert result.token_ids.shape == (0, 4)


MUTANTS = {
    "accepts whatever was drafted": ("has_node & (drafted == best)", "has_node"),
    "forgets where a tile begins": ("tile * BLOCK_V + index)", "index)"),
    "lets the padding of a tile win": (
        'ids < vocab_size, other=-float("inf")',
        "ids < vocab_size, other=9.0",
    ),
    "does not pad what it emits": ("tl.where(goes_on, best, -1)", "best"),
    "takes the first tile": ("tiles == best_tile", "tiles == 0"),
    "lets a NaN win": ("tl.where(logits != logits, -float", "tl.where(logits != logits, float"),
}


@pytest.mark.interpreter
@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_kernel_fails(name: str, check_mutant) -> None:
    torch.manual_seed(3)
    logits = torch.randn(8, 100)
    logits[0, 3] = float("nan")
    draft, row_starts, nodes = drafts(logits.nan_to_num(-9.0), 3, [3, 1], [3, 3])
    config = LaunchConfig(32, num_warps=4)
    cpu = torch.device("cpu")

    def check_all() -> None:
        check(logits, draft, row_starts, nodes, cpu, config=config)

    check_mutant("greedy_verify", None, check_all)
    check_mutant("greedy_verify", MUTANTS[name], check_all)
