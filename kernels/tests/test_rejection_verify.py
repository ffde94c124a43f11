"""`rejection_verify` against core and the target's distribution: the reference, and the kernel where it runs."""

from functools import partial

import pytest
import torch
from kernelchains import chains, checked, of_core
from kernelcheck import NAN, keys_for

from specdec import DraftSampling
from specdec_kernels.triton import ChainVerdict
from specdec_kernels.triton.noise import NoiseKeys
from specdec_kernels.triton.rejection_verify import rejection_verify
from specdec_kernels.triton.rejection_verify.config import LaunchConfig
from specdec_kernels.triton.rejection_verify.reference import rejection_verify_reference

# Infinities are part of the arithmetic here, and mutants read NaN; the interpreter's numpy warns where a GPU goes on.
pytestmark = pytest.mark.filterwarnings("ignore:.* encountered:RuntimeWarning")


check = partial(checked, rejection_verify, rejection_verify_reference, 0)


@pytest.mark.parametrize("vocab_size", [1, 33, 8193, pytest.param(151936, marks=pytest.mark.full)])
@pytest.mark.parametrize("width", [0, 1, 7])
@pytest.mark.parametrize("has_q", [False, True])
def test_odd_sizes(vocab_size: int, width: int, has_q: bool, device: torch.device) -> None:
    torch.manual_seed(vocab_size + width)
    batch, q = chains([width, 0, width // 2, width], width, vocab_size, 0.8)
    check(batch, [1.0, 0.7, 0.0, 1.5], device, q if has_q else None)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_other_types(dtype: torch.dtype, device: torch.device) -> None:
    torch.manual_seed(1)
    (logits, *ids), q = chains([3, 2, 3], 3, 300, 0.7)
    check((logits.to(dtype), *(t.int() for t in ids)), [1.0, 0.0, 0.7], device, q.double())


def test_many_short_chains(device: torch.device) -> None:
    torch.manual_seed(2)
    batch, q = chains([3, 2, 1] * 6, 3, 7, 0.5)
    has_probs = torch.tensor([True, True, False] * 6)[torch.randperm(18)]
    config = LaunchConfig(4, num_warps=1)
    out = check(batch, [1.0, 0.5, 0.0, 2.0, 1.0, 1.0] * 3, device, q, has_probs, config=config)
    assert set(out.num_accepted.tolist()) == {0, 1, 2, 3}, out


def test_a_perfect_draft_stands_and_an_impossible_one_does_not(device: torch.device) -> None:
    torch.manual_seed(3)
    batch, q = chains([5] * 4, 5, 40, 1.0)
    assert check(batch, [1.0] * 4, device, 0.999 * q).num_accepted.tolist() == [5] * 4
    impossible = q.clone()
    impossible[torch.arange(4)[:, None], torch.arange(5), batch[1]] = 0.0
    assert check(batch, [1.0] * 4, device, impossible).num_accepted.tolist() == [0] * 4


def test_where_nothing_is_left_of_p_the_token_is_drawn_from_p(device: torch.device) -> None:
    torch.manual_seed(4)
    batch, q = chains([1] * 4, 1, 30, 1.0)
    greater = q + 0.1  # not a distribution, but no residual: a rejected row has nothing left
    accepted = check(batch, [1.0] * 4, device, greater).num_accepted
    assert (accepted == 0).any()


def test_a_draft_vocabulary_of_another_size(device: torch.device) -> None:
    torch.manual_seed(5)
    (logits, draft, starts, counts), q = chains([3] * 6, 3, 50, 0.8)
    smaller = q[:, :, :41] / q[:, :, :41].sum(-1, keepdim=True)
    check((logits, draft, starts, counts), [1.0] * 6, device, smaller)
    greater = torch.nn.functional.pad(q, (0, 7), value=0.01)
    draft = draft.clone()
    draft[0, 0], draft[1, 1] = 53, -1
    out = check((logits, draft, starts, counts), [1.0] * 6, device, greater)
    assert out.num_accepted[0] == 0
    check((logits, draft, starts, counts), [1.0, 0.0] * 3, device)


def test_forbidden_ids_are_never_emitted(device: torch.device) -> None:
    torch.manual_seed(6)
    batch, q = chains([2] * 8, 2, 20, 0.5)
    batch[0][:, 3:17] = -torch.inf
    q = q.clone()
    q[:, :, 1] = 0.0
    out = check(batch, [1.0] * 8, device, q, config=LaunchConfig(4, num_warps=1))
    assert set(out.token_ids.flatten().tolist()) <= {-1, 0, 1, 2, 17, 18, 19}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("broken", [NAN, -torch.inf])
def test_a_row_without_p_is_uniform_and_reported(
    broken: float, dtype: torch.dtype, device: torch.device
) -> None:
    torch.manual_seed(12)
    (logits, *batch), q = chains([2] * 40, 2, 9, 0.8)
    logits = logits.to(dtype)
    by_place = logits.view(40, 3, 9)
    by_place[:10, 0] = broken
    by_place[10:20, 1, 3 if broken != broken else slice(None)] = broken
    by_place[20:30, 2] = broken
    temperatures = [1.0, 0.0] * 20
    found = check((logits, *batch), temperatures, device, q).first_unsound.tolist()
    assert found[:10] == [0] * 10
    assert set(found[10:20]) == {-1, 1}
    assert set(found[20:30]) == {-1, 2}
    assert found[30:] == [-1] * 10
    drawn = check((logits, *batch), [1.0] * 40, device).token_ids[:10, 0]
    assert len(set(drawn.tolist())) > 4, "every id has a chance"


def test_a_nan_in_q_rejects(device: torch.device) -> None:
    batch, q = chains([1] * 3, 1, 9, 0.8)
    assert check(batch, [1.0] * 3, device, q.fill_(NAN)).num_accepted.tolist() == [0] * 3


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_a_draft_vocabulary_of_its_own(dtype: torch.dtype, device: torch.device) -> None:
    torch.manual_seed(13)
    (logits, draft, *rest), q = chains([3, 2, 0, 3] * 3, 3, 50, 0.8)
    target_ids = torch.randperm(50)[:20]
    draft_ids = torch.full((50,), -1, dtype=dtype)
    draft_ids[target_ids] = torch.arange(20, dtype=dtype)
    small = q[:, :, target_ids] / q[:, :, target_ids].sum(-1, keepdim=True)
    wide = torch.zeros_like(q).index_copy_(2, target_ids, small)
    draft = wide.flatten(0, 1).multinomial(1).view(draft.shape)
    draft[0, 1] = int((draft_ids < 0).nonzero()[0])  # an id that the draft does not have
    temperatures = [1.0, 0.0, 0.7] * 4
    got = check((logits, draft, *rest), temperatures, device, small, draft_ids=draft_ids)
    expected = check((logits, draft, *rest), temperatures, device, wide)
    assert all(torch.equal(*pair) for pair in zip(got, expected, strict=True))
    assert got.num_accepted.sum() > 2


def test_at_temperature_0_it_is_greedy_verification_whatever_q_says(device: torch.device) -> None:
    torch.manual_seed(7)
    (logits, draft, starts, counts), q = chains([4] * 5, 4, 60, 0.2)
    best = logits.argmax(1).reshape(5, 5)
    draft = torch.where(torch.rand(5, 4) < 0.8, best[:, :4], draft)
    out = check((logits, draft, starts, counts), [0.0] * 5, device, q)
    num_accepted = (draft == best[:, :4]).long().cumprod(1).sum(1)
    expected = torch.where(torch.arange(5) <= num_accepted[:, None], best, -1)
    assert torch.equal(out.token_ids.cpu(), expected)


def test_views_and_requests_out_of_order(device: torch.device) -> None:
    torch.manual_seed(8)
    (logits, draft, starts, counts), q = chains(4, 3, 50, 0.8)
    wide = torch.randn(len(logits), 60)
    wide[:, 5:55] = logits
    order = torch.tensor([2, 0, 3, 1])
    draft_probs = torch.zeros(4, 5, 60)
    draft_probs[:, :3, 4:54] = q[order]
    draft = torch.cat((draft[order], draft[order]), 1)[:, :3]
    assert not draft.is_contiguous()
    keys = NoiseKeys(*(key[order] for key in keys_for(4)))
    given = (wide[:, 5:55], draft, starts[order], counts[order])
    check(given, [1.0] * 4, device, draft_probs[:, :, 4:54], keys=keys)


@pytest.mark.parametrize("has_q", [False, True])
def test_verdicts_are_those_of_core(has_q: bool, device: torch.device) -> None:
    torch.manual_seed(9)
    batch, q = chains(16, 4, 30, 0.7)
    has_probs, law = torch.rand(16) < 0.8, torch.nn.functional.pad(q, (0, 0, 0, 1))
    fields = {"sampling": DraftSampling.IID, "node_probs": law, "has_probs": has_probs} if has_q else {}
    temperatures = [1.0, 0.7, 0.0, 1.5] * 4
    nodes, tokens = of_core("probabilistic", batch, temperatures, keys_for(16), **fields)
    out = check(batch, temperatures, device, q if has_q else None, has_probs if has_q else None)
    counts = out.num_accepted.tolist()
    assert counts == [len(row) for row in nodes]
    assert [row[: n + 1] for row, n in zip(out.token_ids.tolist(), counts, strict=True)] == tokens


@pytest.mark.parametrize("has_q", [False, True])
def test_what_is_emitted_follows_p(has_q: bool) -> None:
    """The first two tokens of many chains; the second one's logits depend on the first."""
    torch.manual_seed(10)
    count, by_token = 40_000, 1.5 * torch.randn(5, 4)  # row 4: after the last committed token
    q_by_token = torch.softmax(by_token + torch.randn(5, 4), -1)
    first = torch.multinomial(q_by_token[4].expand(count, -1), 1)[:, 0]
    if not has_q:
        first = torch.randint(0, 4, (count,))
    draft = first[:, None]
    logits = torch.stack((by_token[4].expand(count, -1), by_token[first]), 1).flatten(0, 1)
    requests = torch.arange(count)
    keys = NoiseKeys(torch.full((count,), 5), requests, torch.zeros_like(requests))
    verdict = rejection_verify(
        logits, draft, 2 * requests, torch.ones_like(requests), torch.full((count,), 1.0), keys,
        draft_probs=q_by_token[4].expand(count, 1, -1) if has_q else None,
    )  # fmt: skip
    observed = torch.bincount(verdict.token_ids[:, 0], minlength=4).double()
    expected = torch.softmax(by_token[4].double(), -1) * count
    assert ((observed - expected) ** 2 / expected).sum() < 18  # chi-square, 3 degrees, 0.04 %
    for token in range(4):
        stood = (verdict.num_accepted == 1) & (verdict.token_ids[:, 0] == token)
        observed = torch.bincount(verdict.token_ids[stood, 1], minlength=4).double()
        expected = torch.softmax(by_token[token].double(), -1) * stood.sum()
        assert ((observed - expected) ** 2 / expected).sum() < 18


def test_no_requests(device: torch.device) -> None:
    empty = torch.empty(0, dtype=torch.int64, device=device)
    keys = NoiseKeys(empty, empty, empty)
    result = rejection_verify(
        torch.empty((0, 8), device=device), empty.reshape(0, 3), empty, empty, empty.float(), keys
    )
    assert result.token_ids.shape == (0, 4)


def test_wrong_arguments_are_named() -> None:
    ids = torch.zeros(2, dtype=torch.int64)
    good = {
        "logits": torch.zeros(8, 5),
        "draft_token_ids": torch.zeros((2, 3), dtype=torch.int64),
        "row_starts": ids,
        "num_nodes": ids,
        "temperatures": torch.ones(2),
        "keys": keys_for(2),
        "draft_probs": torch.zeros(2, 3, 5),
    }
    for name, wrong in {
        "logits": torch.zeros(0, 5),
        "draft_token_ids": ids,
        "row_starts": ids[:1],
        "temperatures": torch.ones(2, dtype=torch.int64),
        "keys": keys_for(3),
        "draft_probs": torch.zeros(2, 2, 5),
        "has_probs": ids,
        "out": ChainVerdict(ids, ids, ids),
        "draft_ids": ids,
    }.items():
        with pytest.raises(ValueError, match=name):
            rejection_verify(**(good | {name: wrong}))
    with pytest.raises(ValueError, match="draft_probs"):
        rejection_verify(**(good | {"draft_probs": torch.zeros(2, 3, 5, dtype=torch.bfloat16)}))
    with pytest.raises(ValueError, match="has_probs"):
        rejection_verify(**(good | {"draft_probs": None, "has_probs": ids.bool()}))
    with pytest.raises(ValueError, match="draft_ids"):
        rejection_verify(**(good | {"draft_probs": None, "draft_ids": torch.zeros(5, dtype=torch.int64)}))


MUTANTS = {
    "accepts whatever was drafted": ("uniforms, 0.0), 0) < ratio", "uniforms, 0.0), 0) < 2.0"),
    "turns the test round": ("uniforms, 0.0), 0) < ratio", "uniforms, 0.0), 0) > ratio"),
    "takes the first uniform for all": ("tl.where(nodes == num_accepted, uniforms", "tl.where(nodes == 0, uniforms"),
    "draws from p after a rejection": ("rest = target * weight - q.to(target.dtype)", "rest = target * weight"),
    "leaves the point mass in": ("tl.where(ids == drafted, 0.0, target * weight)", "target * weight"),
    "draws the residual with another word": ("(accepted << STREAM_BITS) | RESIDUAL", "(accepted << STREAM_BITS) | 2"),
    "takes tiles for equally heavy": ("mass * tl.exp(heated_below(best, top, divisor))", "mass"),
    "gives nothing where nothing is left": ("tl.where(is_empty, offsets + NUM_TILES, offsets)", "offsets"),
    "believes q of every request": ("if HAS_FLAGS:\n        is_drawn", "if False:\n        is_drawn"),
    "takes a broken row for sound": ("first_unsound = tl.where(mass < 0.0, place, first_unsound)", "pass"),
    "does not look for NaN": ("tl.max((raw != raw).to(tl.int32), 0) > 0", "raw.sum() > 1e30"),
    "takes the target's ids for the draft's": ("if HAS_MAP:", "if False:"),
    "tests nodes before their rows are summed": ("NUM_TILES * (num_nodes + 1)", "NUM_TILES"),
    "does not pad what it emits": ("mask=places < accepted, other=-1", "mask=places < accepted, other=-2"),
}  # fmt: skip


@pytest.mark.interpreter
@pytest.mark.parametrize("name", [None, *MUTANTS])
def test_a_wrong_kernel_fails(name: str | None, check_mutant) -> None:
    cpu = torch.device("cpu")

    def check_all() -> None:
        test_many_short_chains(cpu)
        test_where_nothing_is_left_of_p_the_token_is_drawn_from_p(cpu)
        test_a_row_without_p_is_uniform_and_reported(NAN, torch.float32, cpu)
        test_a_draft_vocabulary_of_its_own(torch.int64, cpu)

    check_mutant("rejection_verify", None if name is None else MUTANTS[name], check_all)
