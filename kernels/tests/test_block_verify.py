"""`block_verify` against core and the target's distribution: the reference, and the kernel where it runs."""

from functools import partial

import pytest
import torch
from kernelchains import chains, checked, of_core
from kernelcheck import keys_for

from specdec import DraftSampling
from specdec_kernels.triton import ChainVerdict
from specdec_kernels.triton.block_verify import block_verify
from specdec_kernels.triton.block_verify.config import LaunchConfig
from specdec_kernels.triton.block_verify.reference import block_verify_reference
from specdec_kernels.triton.noise import NoiseKeys
from specdec_kernels.triton.rejection_verify import rejection_verify

# Infinities are part of the arithmetic here, and mutants read NaN; the interpreter's numpy warns where a GPU goes on.
pytestmark = pytest.mark.filterwarnings("ignore:.* encountered:RuntimeWarning")


check = partial(checked, block_verify, block_verify_reference, 1)


@pytest.mark.parametrize("vocab_size", [1, 33, 8193, pytest.param(151936, marks=pytest.mark.full)])
@pytest.mark.parametrize("width", [0, 1, 7])
def test_odd_sizes(vocab_size: int, width: int, device: torch.device) -> None:
    torch.manual_seed(vocab_size + width)
    batch, q = chains([width, 0, width // 2, width], width, vocab_size, 0.8)
    check(batch, [1.0, 0.7, 0.0, 1.5], device, q)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_other_types(dtype: torch.dtype, device: torch.device) -> None:
    torch.manual_seed(1)
    (logits, *ids), q = chains([3, 2, 3], 3, 300, 0.7)
    check((logits.to(dtype), *(t.int() for t in ids)), [1.0, 0.0, 0.7], device, q.double())


def test_many_short_chains(device: torch.device) -> None:
    torch.manual_seed(2)
    batch, q = chains([3, 3, 2, 1] * 4, 3, 7, 0.6)
    has_probs = torch.tensor([True, True, True, False] * 4)[torch.randperm(16)]
    config = LaunchConfig(4, num_warps=1)
    out = check(batch, [1.0, 0.5, 1.0, 2.0, 0.0, 1.0, 1.0, 1.5] * 2, device, q, has_probs, config=config)
    assert set(out.num_accepted.tolist()) == {0, 1, 2, 3}


def test_a_row_without_p_is_uniform_and_reported_and_a_vocabulary_may_be_its_own(
    device: torch.device,
) -> None:
    torch.manual_seed(11)
    (logits, draft, *rest), q = chains([3, 2, 0, 3] * 4, 3, 50, 0.8)
    target_ids = torch.randperm(50)[:20]
    draft_ids = torch.full((50,), -1)
    draft_ids[target_ids] = torch.arange(20)
    small = q[:, :, target_ids] / q[:, :, target_ids].sum(-1, keepdim=True)
    wide = torch.zeros_like(q).index_copy_(2, target_ids, small)
    draft = wide.flatten(0, 1).multinomial(1).view(draft.shape)
    logits[::5, 3] = torch.nan
    temperatures = [1.0, 0.0, 0.7, 1.0] * 4
    got = check((logits, draft, *rest), temperatures, device, small, draft_ids=draft_ids)
    expected = check((logits, draft, *rest), temperatures, device, wide)
    assert all(torch.equal(*pair) for pair in zip(got, expected, strict=True))
    assert got.num_accepted.sum() > 2
    assert {-1, 0, 1} <= set(got.first_unsound.tolist())


def test_a_node_after_a_forbidden_one_never_passes_however_small_its_q(device: torch.device) -> None:
    p, q = [[0.0, 0.5, 0.5]] + [[0.5, 0.25, 0.25]] * 2, [[0.5, 0.25, 0.25], [1e-40, 0.5, 0.5]]
    batch, probs = same_chain(p, q, 8)
    assert not check(batch, [1.0] * 8, device, probs).num_accepted.any()


def test_at_temperature_0_it_is_greedy_verification_whatever_q_says(device: torch.device) -> None:
    torch.manual_seed(3)
    (logits, draft, starts, counts), q = chains([4] * 5, 4, 60, 0.2)
    best = logits.argmax(1).reshape(5, 5)
    draft = torch.where(torch.rand(5, 4) < 0.8, best[:, :4], draft)
    out = check((logits, draft, starts, counts), [0.0] * 5, device, q)
    num_accepted = (draft == best[:, :4]).long().cumprod(1).sum(1)
    expected = torch.where(torch.arange(5) <= num_accepted[:, None], best, -1)
    assert torch.equal(out.token_ids.cpu(), expected)


def test_without_q_it_is_rejection(device: torch.device) -> None:
    torch.manual_seed(4)
    batch, _ = chains([3, 2, 0, 3], 3, 20, 0.5)
    given = (*(tensor.to(device) for tensor in batch), torch.ones(4, device=device))
    keys = NoiseKeys(*(key.to(device) for key in keys_for(4, 1)))
    pairs = zip(block_verify(*given, keys), rejection_verify(*given, keys), strict=True)
    assert all(torch.equal(*pair) for pair in pairs)


def same_chain(p: list[list[float]], q: list[list[float]], size: int):
    """Requests that drafted id 0 throughout, all from the same distributions."""
    counts = torch.full((size,), len(q))
    draft = torch.zeros((size, len(q)), dtype=torch.int64)
    logits = torch.tensor(p).log().repeat(size, 1)
    return (logits, draft, len(p) * torch.arange(size), counts), torch.tensor([q]).expand(size, -1, -1)


def test_a_late_token_rescues_an_early_one(device: torch.device) -> None:
    """A node that rejection sampling would reject is accepted if the block as a whole is probable: the deepest node decides."""
    batch, q = same_chain([[0.5, 0.5], [0.99, 0.01], [0.5, 0.5]], [[0.9, 0.1], [0.5, 0.5]], 16)
    block = check(batch, [1.0] * 16, device, q)
    given = (*(tensor.to(device) for tensor in batch), torch.ones(16, device=device))
    keys = NoiseKeys(*(key.to(device) for key in keys_for(16, 1)))
    rejection = rejection_verify(*given, keys, draft_probs=q.to(device))
    assert block.num_accepted.sum() > rejection.num_accepted.sum()


def test_an_early_token_has_nothing_to_spare_for_a_late_one(device: torch.device) -> None:
    batch, q = same_chain([[0.99, 0.01], [0.5, 0.5], [0.5, 0.5]], [[0.5, 0.5], [0.9, 0.1]], 12)
    assert set(check(batch, [1.0] * 12, device, q).num_accepted.tolist()) == {1, 2}


def test_the_token_after_a_doubtful_node_comes_from_what_its_weight_leaves(device: torch.device) -> None:
    p = [[0.5, 0.3, 0.2], [0.05, 0.55, 0.4], [0.3, 0.3, 0.4]]
    batch, q = same_chain(p, [[0.9, 0.05, 0.05], [0.777, 0.0, 0.223]], 24)
    out = check(batch, [1.0] * 24, device, q)
    assert (out.token_ids[out.num_accepted == 1, 1] == 1).all()


def test_verdicts_are_those_of_core(device: torch.device) -> None:
    torch.manual_seed(5)
    batch, q = chains([4, 3, 4, 2, 0, 1] * 2, 4, 30, 0.7)
    has_probs, law = torch.rand(12) < 0.8, torch.nn.functional.pad(q, (0, 0, 0, 1))
    fields = {"sampling": DraftSampling.IID, "node_probs": law, "has_probs": has_probs}
    temperatures = [1.0, 0.7, 0.0, 1.5] * 3
    nodes, tokens = of_core("block", batch, temperatures, keys_for(12, 1), **fields)
    out = check(batch, temperatures, device, q, has_probs)
    counts = out.num_accepted.tolist()
    assert counts == [len(row) for row in nodes]
    assert [row[: n + 1] for row, n in zip(out.token_ids.tolist(), counts, strict=True)] == tokens


def test_what_is_emitted_follows_p_and_more_is_accepted_than_by_rejection() -> None:
    """Pairs of tokens of many chains; the second one's logits depend on the first."""
    torch.manual_seed(6)
    count, by_token = 40_000, 1.5 * torch.randn(5, 4)  # row 4: after the last committed token
    q_by_token = torch.softmax(by_token + torch.randn(5, 4), -1)
    first = torch.multinomial(q_by_token[4].expand(count, -1), 1)[:, 0]
    second = torch.multinomial(q_by_token[first], 1)[:, 0]
    logits = torch.stack((by_token[4].expand(count, -1), by_token[first], by_token[second]), 1).flatten(0, 1)
    requests = torch.arange(count)
    keys = NoiseKeys(torch.full((count,), 5), requests, torch.zeros_like(requests))
    draft, counts = torch.stack((first, second), 1), torch.full((count,), 2)
    given = (logits, draft, 3 * requests, counts, torch.ones(count), keys)
    q = torch.stack((q_by_token[4].expand(count, -1), q_by_token[first]), 1)
    verdict = block_verify(*given, draft_probs=q)
    # How much of a block is accepted depends on its tokens, so pairs are compared; one that lacks its second gets it from p.
    late = torch.multinomial(torch.softmax(by_token, -1)[verdict.token_ids[:, 0]], 1)[:, 0]
    last = torch.where(verdict.num_accepted >= 1, verdict.token_ids[:, 1], late)
    pairs = torch.bincount(4 * verdict.token_ids[:, 0] + last, minlength=16).double()
    p = torch.softmax(by_token.double(), -1)
    expected = (p[4][:, None] * p[:4]).flatten() * count
    assert ((pairs - expected) ** 2 / expected).sum() < 40  # chi-square, 15 degrees, 0.04 %
    rejected = rejection_verify(*given, draft_probs=q)
    assert verdict.num_accepted.sum() > 1.005 * rejected.num_accepted.sum()


def test_no_requests(device: torch.device) -> None:
    empty = torch.empty(0, dtype=torch.int64, device=device)
    given = (torch.empty((0, 8), device=device), empty.reshape(0, 3), empty, empty, empty.float())
    result = block_verify(
        *given, NoiseKeys(empty, empty, empty), draft_probs=torch.empty((0, 3, 8), device=device)
    )
    assert result.token_ids.shape == (0, 4)


def test_wrong_arguments_are_named() -> None:
    ids = torch.zeros(2, dtype=torch.int64)
    given = (
        torch.zeros(8, 5),
        torch.zeros((2, 3), dtype=torch.int64),
        ids,
        ids,
        torch.ones(2),
        keys_for(2, 1),
    )
    for name, wrong in {
        "draft_probs": {"draft_probs": torch.zeros(2, 3)},
        "has_probs": {"draft_probs": torch.zeros(2, 3, 5), "has_probs": ids},
        "out": {"draft_probs": torch.zeros(2, 3, 5), "out": ChainVerdict(ids, ids, ids)},
    }.items():
        with pytest.raises(ValueError, match=name):
            block_verify(*given, **wrong)
    with pytest.raises(ValueError, match="has_probs"):
        block_verify(*given, has_probs=ids.bool())


MUTANTS = {
    "lets weights grow above 1": ("tl.minimum(weight * ratio, 1.0)", "weight * ratio"),
    "forgets the weight of the parent": ("tl.minimum(weight * ratio, 1.0)", "tl.minimum(ratio, 1.0)"),
    "takes the first node that stands": ("tl.where(stands, node + 1,", "tl.where(stands & (num_accepted == 0), node + 1,"),
    "takes P for the chance": ("if is_sampled & (node + 1 < num_nodes):", "if False:"),
    "forgets 1 - P": ("rest + (1.0 - weight), 1.0)", "rest + 1.0, 1.0)"),
    "sums p without its weight": ("tl.load(weights_ptr + program),\n", "1.0,\n"),
    "draws from the residual without its weight": ("launcher.emit(weights,", "launcher.emit(None,"),
    "sums the first tile only": ("mask=tiles < NUM_TILES, other=0.0), 0)", "mask=tiles < 1, other=0.0), 0)"),
}  # fmt: skip


@pytest.mark.interpreter
@pytest.mark.parametrize("name", [None, *MUTANTS])
def test_a_wrong_kernel_fails(name: str | None, check_mutant) -> None:
    cpu = torch.device("cpu")

    def check_all() -> None:
        test_many_short_chains(cpu)
        test_an_early_token_has_nothing_to_spare_for_a_late_one(cpu)
        test_the_token_after_a_doubtful_node_comes_from_what_its_weight_leaves(cpu)
        test_a_row_without_p_is_uniform_and_reported_and_a_vocabulary_may_be_its_own(cpu)

    check_mutant("block_verify", None if name is None else MUTANTS[name], check_all)
