"""`strict_verify` against core: the reference everywhere, the kernel under the interpreter and on a GPU."""

import pytest
import torch
from kernelchains import of_core
from kernelcheck import POISON, keys_for

from specdec.noise import exponentials
from specdec_kernels.triton.gumbel_sample.reference import apply_temperature, gumbel_sample_reference
from specdec_kernels.triton.noise import NoiseKeys
from specdec_kernels.triton.noise.config import LaunchConfig
from specdec_kernels.triton.process_logits import Cuts
from specdec_kernels.triton.process_logits.reference import process_logits_reference
from specdec_kernels.triton.strict_verify import PathVerdict, RequestCuts, strict_verify
from specdec_kernels.triton.strict_verify.reference import strict_verify_reference

# Infinities are part of the arithmetic here; the interpreter's numpy warns of them where a GPU goes on.
pytestmark = pytest.mark.filterwarnings("ignore:.* encountered in :RuntimeWarning")


def drawn_after(logits, start, temperature, keys, request, depth) -> list[int]:
    """The tokens drawn after nodes of one request: row `start + i` at depth `depth[i]`."""
    count = len(depth)
    rows = logits[start : start + count]
    by_row = NoiseKeys(
        keys.seeds[request].expand(count),
        keys.positions[request] + torch.tensor(depth),
        keys.samples[request].expand(count),
    )
    temperatures = torch.full((count,), float(temperature))
    noise = -exponentials(*by_row, torch.zeros_like(by_row.seeds), rows.shape[1]).log()
    scores = apply_temperature(rows, temperatures) + noise
    if temperature > 0 and rows.shape[1] > 1:
        first, second = scores.topk(2, 1).values.unbind(1)
        assert (first - second > 1e-5).all()
    return gumbel_sample_reference(rows, temperatures, by_row, None).tolist()


def depths_of(parents: list[int]) -> list[int]:
    depths = [0]
    for parent in parents:
        depths.append(depths[parent + 1] + 1)
    return depths


def check(
    logits, draft, row_starts, num_nodes, temperatures, device, parents=None, keys=None, cuts=None, **options
) -> PathVerdict:
    """Run on `device` into poisoned outputs, compare with the reference, and return what came out."""
    size, width = draft.shape
    keys = keys_for(size, -3) if keys is None else keys
    inputs = (logits, draft, row_starts, num_nodes, torch.tensor(temperatures, dtype=torch.float32))
    shapes = ((size,), (size, width + 1), (size, width), (size,))
    out = PathVerdict(*(torch.full(shape, POISON, device=device) for shape in shapes))
    result = strict_verify(
        *(tensor.to(device) for tensor in inputs),
        NoiseKeys(*(key.to(device) for key in keys)),
        parents=None if parents is None else parents.to(device),
        cuts=None if cuts is None else RequestCuts(*(each.to(device) for each in cuts)),
        out=out,
        **options,
    )
    assert result is out
    expected = strict_verify_reference(*inputs, keys, parents, cuts)
    assert [tensor.tolist() for tensor in out] == [tensor.tolist() for tensor in expected]
    return out


def drawn_chains(vocab_size, width, standing, nodes, temperatures, scale=2.0):
    """Chains whose first `standing[b]` tokens are the drawn ones; rows of a request follow each other."""
    keys = keys_for(len(nodes), -3)
    logits = scale * torch.randn(sum(nodes) + len(nodes), vocab_size)
    draft = torch.full((len(nodes), width), -1)
    starts, start = [], 0
    for b, count in enumerate(nodes):
        drawn = drawn_after(logits, start, temperatures[b], keys, b, list(range(count + 1)))
        draft[b, :count] = torch.tensor(drawn[:count], dtype=torch.int64)
        if standing[b] < count:
            draft[b, standing[b]] = (draft[b, standing[b]] + 1) % vocab_size if vocab_size > 1 else -1
        starts.append(start)
        start += count + 1
    return logits, draft, torch.tensor(starts), torch.tensor(nodes), temperatures


@pytest.mark.parametrize("vocab_size", [1, 33, 8193, pytest.param(151936, marks=pytest.mark.full)])
@pytest.mark.parametrize("width", [0, 1, 7])
def test_odd_sizes(vocab_size: int, width: int, device: torch.device) -> None:
    torch.manual_seed(vocab_size + width)
    nodes = [width, 0, width // 2, width]
    standing = [width, 0, width // 2, max(0, width - 3)]
    out = check(*drawn_chains(vocab_size, width, standing, nodes, [1.0, 0.7, 0.0, 1.5]), device)
    assert out.num_accepted.tolist() == standing


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_other_types(dtype: torch.dtype, device: torch.device) -> None:
    torch.manual_seed(1)
    logits, draft, starts, nodes, temperatures = drawn_chains(400, 3, [3, 1], [3, 3], [1.0, 0.0])
    check(logits.to(dtype), draft.int(), starts.int(), nodes.int(), temperatures, device)


def random_tree(size: int, width: int, vocab_size: int, temperatures: list[float]):
    """Trees over few ids, two thirds of them the drawn ones, so that siblings are equal and paths are accepted."""
    nodes = torch.randint(0, width + 1, (size,))
    parents = torch.tensor([[int(torch.randint(-1, j, ())) for j in range(width)] for _ in range(size)])
    starts = torch.cat((torch.zeros(1, dtype=torch.int64), (nodes + 1).cumsum(0)[:-1]))
    logits = torch.randn(int((nodes + 1).sum()), vocab_size)
    draft = torch.randint(0, vocab_size, (size, width))
    for b, count in enumerate(nodes.tolist()):
        links = parents[b, :count]
        depths = depths_of(links.tolist())
        drawn = torch.tensor(
            drawn_after(logits, int(starts[b]), temperatures[b], keys_for(size, -3), b, depths)
        )
        draft[b, :count] = torch.where(torch.rand(count) < 0.67, drawn[links + 1], draft[b, :count])
    return (logits, draft, starts, nodes, temperatures), parents


@pytest.mark.parametrize("width", [1, 6, 17])
def test_trees(width: int, device: torch.device) -> None:
    torch.manual_seed(width)
    batch, parents = random_tree(4, width, 3, [1.0, 0.0, 0.5, 2.0])
    out = check(*batch, device, parents, config=LaunchConfig(4, num_warps=1))
    if width > 1:
        assert out.num_accepted.max() > 1


def test_a_chain_given_as_a_tree_is_the_chain(device: torch.device) -> None:
    torch.manual_seed(5)
    batch = drawn_chains(50, 5, [5, 2, 0], [5, 4, 3], [1.0, 1.0, 0.0])
    parents = torch.arange(-1, 4).expand(3, 5)
    as_tree, as_chain = check(*batch, device, parents), check(*batch, device)
    assert all(torch.equal(*pair) for pair in zip(as_tree, as_chain, strict=True))


def test_of_equal_siblings_the_longest_path_stands_and_then_the_first(device: torch.device) -> None:
    logits = torch.full((6, 8), -9.0)
    logits[[0, 1, 2, 3, 4, 5], [2, 5, 5, 7, 7, 6]] = 9.0
    draft = torch.tensor([[2, 2, 5, 5, 1]])  # nodes 0 and 1 are equal; 2 and 3, behind 1, as well
    parents = torch.tensor([[-1, -1, 1, 1, 2]])
    out = check(logits, draft, torch.tensor([0]), torch.tensor([5]), [0.0], device, parents)
    assert out.accepted_nodes.tolist() == [[1, 2, -1, -1, -1]]
    assert out.token_ids.tolist() == [[2, 5, 7, -1, -1, -1]]


def test_a_drafted_id_that_is_no_token_does_not_stand(device: torch.device) -> None:
    draft = torch.tensor([[0, 99, 2], [-1, -1, 2]])
    starts, nodes = torch.tensor([0, 0]), torch.tensor([3, 3])
    out = check(9 * torch.eye(4), draft, starts, nodes, [0.0, 0.0], device)
    assert out.num_accepted.tolist() == [1, 0]


def test_padding_is_not_looked_at(device: torch.device) -> None:
    torch.manual_seed(6)
    batch, parents = random_tree(3, 5, 3, [1.0] * 3)
    clean = check(*batch, device, parents)
    is_padding = torch.arange(5) >= batch[3][:, None]
    assert is_padding.any()
    dirty = check(
        batch[0], batch[1].masked_fill(is_padding, 0), *batch[2:], device, parents.masked_fill(is_padding, -7)
    )
    assert all(torch.equal(*pair) for pair in zip(clean, dirty, strict=True))


def test_at_temperature_0_it_is_greedy_verification(device: torch.device) -> None:
    torch.manual_seed(7)
    logits, draft, starts, nodes, _ = drawn_chains(100, 4, [4, 2, 0], [4, 4, 2], [0.0] * 3)
    out = check(logits, draft, starts, nodes, [0.0] * 3, device)
    best = logits.argmax(1).tolist()
    assert out.num_accepted.tolist() == [4, 2, 0]
    assert out.token_ids.tolist() == [best[:5], [*best[5:8], -1, -1], [best[10], -1, -1, -1, -1]]


def test_views_and_requests_out_of_order(device: torch.device) -> None:
    torch.manual_seed(8)
    batch, parents = random_tree(4, 6, 3, [1.0] * 4)
    logits, draft, starts, nodes, temperatures = batch
    wide = torch.randn(len(logits), 9)
    wide[:, 2:5] = logits
    order = torch.tensor([2, 0, 3, 1])
    draft, parents = (torch.cat((t[order], t[order]), 1)[:, :6] for t in (draft, parents))
    assert not draft.is_contiguous()
    keys = NoiseKeys(*(key[order] for key in keys_for(4, -3)))
    check(wide[:, 2:5], draft, starts[order], nodes[order], temperatures, device, parents, keys)


def test_verdicts_are_those_of_core(device: torch.device) -> None:
    torch.manual_seed(9)
    batch, parents = random_tree(12, 9, 4, [1.0, 0.7, 0.0, 1.5] * 3)
    nodes, tokens = of_core("strict", batch[:4], batch[4], keys_for(12, -3), parents=parents)
    found = check(*batch, device, parents)
    counts = found.num_accepted.tolist()
    assert [row[:n] for row, n in zip(found.accepted_nodes.tolist(), counts, strict=True)] == nodes
    assert [row[: n + 1] for row, n in zip(found.token_ids.tolist(), counts, strict=True)] == tokens


def test_the_text_is_that_of_plain_sampling_whatever_was_drafted(device: torch.device) -> None:
    """Every emitted token is the one that is drawn at its position without a draft."""
    torch.manual_seed(10)
    by_prefix = torch.randn(3, 6)  # the logits depend on the last token alone

    def emitted(draft: list[int]) -> list[int]:
        rows = torch.stack([by_prefix[0], *(by_prefix[token % 3] for token in draft)])
        given = (
            rows,
            torch.tensor([draft], dtype=torch.int64),
            torch.tensor([0]),
            torch.tensor([len(draft)]),
        )
        verdict = check(*given, [1.0], device)
        return verdict.token_ids[0, : int(verdict.num_accepted[0]) + 1].tolist()

    text: list[int] = []
    while len(text) < 4:
        text = emitted(text)
    assert emitted([*text[:2], 5]) in (text[:3], [*text[:2], 5, *emitted([*text[:2], 5])[3:]])
    assert emitted([]) == text[:1]


def test_the_first_row_on_the_path_that_is_not_numbers_is_named(device: torch.device) -> None:
    logits = 9 * torch.eye(8).repeat(2, 1)  # row i of a request draws i
    draft = torch.tensor([[0, 1, 2], [0, 7, 0]])
    parents = torch.tensor([[-1, 0, 1], [-1, -1, 0]])
    for row, value, first in [
        (0, torch.nan, [0, -1]), (2, torch.nan, [2, -1]), (3, -torch.inf, [3, -1]), (3, torch.nan, [3, -1]),
        (2, torch.inf, [-1, -1]), (10, torch.nan, [-1, -1]), (8, -torch.inf, [-1, 0]), (9, torch.nan, [-1, 1]),
    ]:  # fmt: skip
        broken = logits.clone()
        broken[row, slice(None) if value < 0 else 5] = value
        out = check(broken, draft, torch.tensor([0, 8]), torch.tensor([3, 3]), [0.0, 0.0], device, parents)
        assert out.first_invalid.tolist() == first
        assert ((out.token_ids >= -1) & (out.token_ids < 8)).all()


TOP_K = torch.tensor([0, 1, 5, 20, 50, 0, 3, 200, 30, 0, 12, 100])
TOP_P = torch.tensor([0.9, 1.0, 0.8, 0.95, 0.5, 0.99, 1e-9, 0.7, 0.9999, 1.0, 0.3, 1.0])


def drawn_with_cuts(logits: torch.Tensor, device: torch.device, block_v: int) -> None:
    """Verify rows that are cut where they are drawn from: the tokens are those of rows that are cut before."""
    size, keys, config = len(TOP_K), keys_for(len(TOP_K), -3), LaunchConfig(block_v, num_warps=1)
    heats = torch.tensor([1.0, 0.7, 1.5, 0.0] * 3)
    by_row = Cuts(heats.repeat_interleave(2), None, TOP_K.repeat_interleave(2), TOP_P.repeat_interleave(2))
    rows = process_logits_reference(logits, by_row._replace(top_k=None, top_p=None))
    cut_rows = process_logits_reference(logits, by_row)
    sampled, draft = (heats > 0).float(), torch.full((size, 1), -1)
    given = 2 * torch.arange(size), torch.ones(size, dtype=torch.int64)
    draft[1:] = strict_verify_reference(rows, draft, *given, sampled, keys, None, RequestCuts(TOP_K, TOP_P))[
        1
    ][1:, :1]
    batch = draft, *given, sampled.tolist(), device
    out = check(rows, *batch, keys=keys, cuts=RequestCuts(TOP_K, TOP_P), config=config)
    assert out.num_accepted.tolist() == [0] + [1] * (size - 1)
    before = check(cut_rows, *batch, keys=keys, config=config)
    assert all(torch.equal(*pair) for pair in zip(out, before, strict=True))


@pytest.mark.parametrize("vocab_size", [2, 33, 1025])
def test_cuts_after_the_draw_give_the_tokens_of_cuts_before_it(vocab_size: int, device: torch.device) -> None:
    torch.manual_seed(vocab_size)
    for scale in (0.5, 3.0):
        drawn_with_cuts(scale * torch.randn(24, vocab_size), device, 16 if vocab_size < 100 else 512)


def test_cuts_between_equal_ids_and_of_forbidden_ones(device: torch.device) -> None:
    torch.manual_seed(1)
    drawn_with_cuts(torch.zeros(24, 70), device, 32)
    logits = torch.randint(0, 3, (24, 70)).float()
    drawn_with_cuts(logits, device, 32)
    logits[torch.rand(24, 70) < 0.7] = -torch.inf
    drawn_with_cuts(logits.index_fill(1, torch.tensor(4), 0.0), device, 32)


def test_cuts_of_rows_that_are_not_numbers(device: torch.device) -> None:
    logits = torch.zeros(3, 40)
    logits[0], logits[1] = torch.nan, -torch.inf
    ids = torch.arange(3)
    given = torch.empty(3, 0, dtype=torch.int64), ids, torch.zeros(3, dtype=torch.int64), [1.0] * 3
    out = check(logits, *given, device, cuts=RequestCuts(torch.full((3,), 5), torch.full((3,), 0.5)))
    assert out.first_invalid.tolist() == [0, 0, -1]


def test_no_requests(device: torch.device) -> None:
    empty = torch.empty(0, dtype=torch.int64, device=device)
    keys = NoiseKeys(empty, empty, empty)
    result = strict_verify(
        torch.empty((0, 8), device=device), empty.reshape(0, 3), empty, empty, empty.float(), keys
    )
    assert result.token_ids.shape == (0, 4)
    assert result.accepted_nodes.shape == (0, 3)


def test_wrong_arguments_are_named() -> None:
    ids = torch.zeros(2, dtype=torch.int64)
    good = {
        "logits": torch.zeros(8, 5),
        "draft_token_ids": ids.reshape(2, 1).expand(2, 3).contiguous(),
        "row_starts": ids,
        "num_nodes": ids,
        "temperatures": torch.ones(2),
        "keys": keys_for(2, -3),
    }
    for name, wrong in {
        "logits": torch.zeros(0, 5),
        "draft_token_ids": torch.zeros(2, 3),
        "row_starts": ids[:1],
        "num_nodes": ids.float(),
        "temperatures": torch.ones(3),
        "keys": keys_for(3, -3),
        "parents": ids,
        "cuts.top_k": RequestCuts(torch.ones(2), torch.ones(2)),
        "cuts.top_p": RequestCuts(ids, torch.ones(2).double()),
        "out": PathVerdict(ids, ids, ids, ids),
    }.items():
        with pytest.raises(ValueError, match=name):
            strict_verify(**(good | {name.split(".")[0]: wrong}))


MUTANTS = {
    "accepts whatever was drafted": ("(above >= 0) & (drafted == wanted)", "above >= 0"),
    "lets a child stand without its parent": ("(above >= 0) & (drafted == wanted)", "drafted == wanted"),
    "takes the last of equally long paths": ("depth > deepest, place", "depth >= deepest, place"),
    "draws at the position of the first token": (
        "tl.load(positions_ptr + request) + depth", "tl.load(positions_ptr + request)",
    ),
    "takes a place for its depth": ("                depth += 1\n", "                depth += 1\n            depth = place\n"),
    "reads the first request's rows": ("row = tl.load(row_starts_ptr + request)", "row = tl.load(row_starts_ptr)"),
    "forgets the token after the path": ("places == last, drawn", "places == 0, drawn"),
    "does not pad what it emits": ("tl.full((BLOCK_N,), -1, tl.int64)\n    step", "places.to(tl.int64)\n    step"),
    "calls rows with a NaN numbers": ("tl.where(is_broken, -1 - winner, winner)", "winner"),
    "does not count equal ids": ("tl.sum(comes_before.to(tl.int64), 0)", "tl.sum((logits > border).to(tl.int64), 0)"),
    "takes the highest ids of equal ones": ("logits == border) & (ids < winner", "logits == border) & (ids > winner"),
    "forgets top-k": ("(has_top_k == 0) | (rank < top_k)", "rank < vocab_size"),
    "cuts top-p among all ids": ("            if has_top_k:", "            if top_k < 0:"),
    "never looks for the mass of top-k": ("is_open & (of_top_k < 0)", "is_open & (of_top_k > 0)"),
    "draws again at the position of the first token": ("depth + tl.load(positions_ptr", "tl.load(positions_ptr"),
    "looks at the last row only": ("tl.where(is_broken, step, first_invalid)", "first_invalid"),
}  # fmt: skip


@pytest.mark.interpreter
@pytest.mark.parametrize("name", [None, *MUTANTS])
def test_a_wrong_kernel_fails(name: str | None, check_mutant) -> None:
    cpu = torch.device("cpu")

    def check_all() -> None:
        torch.manual_seed(3)
        batch, parents = random_tree(4, 6, 3, [1.0, 0.0, 0.5, 2.0])
        check(*batch, cpu, parents, config=LaunchConfig(4, num_warps=1))
        test_of_equal_siblings_the_longest_path_stands_and_then_the_first(cpu)
        test_a_drafted_id_that_is_no_token_does_not_stand(cpu)
        test_the_first_row_on_the_path_that_is_not_numbers_is_named(cpu)
        test_cuts_after_the_draw_give_the_tokens_of_cuts_before_it(33, cpu)
        test_cuts_between_equal_ids_and_of_forbidden_ones(cpu)

    check_mutant("strict_verify", None if name is None else MUTANTS[name], check_all)
