"""`process_logits` against core: the reference everywhere, the kernel where there is one."""

import numpy as np
import pytest
import torch

from specdec import SamplingParams
from specdec.logits import RowBlock, apply_temperature_and_truncation, p_logits
from specdec_kernels.triton.process_logits import Bias, Cuts, Penalties, process_logits
from specdec_kernels.triton.process_logits.config import LaunchConfig
from specdec_kernels.triton.process_logits.reference import process_logits_reference
from specdec_samplers.rules import RequestRules
from specdec_samplers.rules.penalties import PenaltyRule

# Infinities are part of the arithmetic here; the interpreter's numpy warns of them where a GPU goes on.
pytestmark = pytest.mark.filterwarnings("ignore:.* encountered in :RuntimeWarning")

INF, NAN = float("inf"), float("nan")
SMALL = LaunchConfig(16, 1, 32, 1)


def moved(given, device):
    """A tensor, or a tuple of them, on a device."""
    if given is None:
        return None
    if isinstance(given, torch.Tensor):
        return given.to(device)
    return type(given)(*(moved(each, device) for each in given))


def check(logits, device, bias=None, penalties=None, bitmask=None, cuts=None, **options) -> torch.Tensor:
    """Run on `device` into a poisoned output; equal to the reference, bit for bit, and returned."""
    out = torch.full(logits.shape, NAN, device=device)
    given = {"bias": bias, "penalties": penalties, "bitmask": bitmask, "cuts": cuts}
    result = process_logits(
        moved(logits, device),
        **{name: moved(each, device) for name, each in given.items()},
        out=out,
        **options,
    )
    assert result is out
    expected = process_logits_reference(logits, bias, penalties, bitmask, cuts)
    assert torch.equal(out.cpu().nan_to_num(nan=INF), expected.nan_to_num(nan=INF))
    assert torch.equal(out.cpu().isnan(), expected.isnan())
    return out.cpu()


def floats(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)


def cut_by_core(logits: torch.Tensor, cuts: Cuts) -> torch.Tensor:
    params = [
        SamplingParams(temperature=t, min_p=m, top_k=k, top_p=p)
        for t, m, k, p in zip(*(each.tolist() for each in cuts), strict=True)
    ]
    return apply_temperature_and_truncation(logits, params, [1] * len(logits))


def random_cuts(size: int) -> Cuts:
    return Cuts(
        torch.tensor([1.0, 0.7, 0.0, 1.6, 0.3])[torch.arange(size) % 5],
        torch.where(torch.rand(size) < 0.5, 0.1 * torch.rand(size), 0.0),
        torch.where(torch.rand(size) < 0.7, torch.randint(1, 30, (size,)), 0).int(),
        torch.where(torch.rand(size) < 0.7, 0.3 + 0.7 * torch.rand(size), 1.0),
    )


@pytest.mark.parametrize(
    "vocab_size", [1, 2, 33, 8193, pytest.param(50257, marks=pytest.mark.full), pytest.param(151936, marks=pytest.mark.full)]
)  # fmt: skip
def test_cuts_of_odd_sizes(vocab_size: int, device: torch.device) -> None:
    torch.manual_seed(vocab_size)
    size = 5 if vocab_size < 1000 else 2
    logits, cuts = 3 * torch.randn(size, vocab_size), random_cuts(size)
    out = check(logits, device, cuts=cuts)
    assert torch.equal(out, cut_by_core(logits, cuts))


def test_ties_are_kept_from_the_lowest_id_on(device: torch.device) -> None:
    torch.manual_seed(1)
    logits = torch.randint(0, 3, (8, 70)).float()
    top_k = torch.tensor([1, 5, 20, 40, 69, 70, 0, 30], dtype=torch.int64)
    out = check(logits, device, cuts=Cuts(torch.ones(8), None, top_k, None), config=SMALL)
    assert (out > -INF).sum(1).tolist() == [1, 5, 20, 40, 69, 70, 70, 30]
    assert (out[1] > -INF).nonzero()[:, 0].tolist() == (logits[1] == 2).nonzero()[:5, 0].tolist()
    top_p = floats(0.01, 0.5, 0.9, 0.999, 0.25, 0.75, 1.0, 0.3)
    check(logits, device, cuts=Cuts(torch.ones(8), None, None, top_p))
    check(logits, device, cuts=Cuts(torch.ones(8), None, top_k, top_p))


def test_equal_ids_share_the_mass_exactly(device: torch.device) -> None:
    logits = torch.full((4, 40), -INF)
    logits[:, 3:11] = 5.0  # eight equal ids
    top_k = torch.tensor([0, 0, 6, 3], dtype=torch.int32)
    out = check(
        logits, device, cuts=Cuts(torch.ones(4), None, top_k, floats(0.5, 0.51, 0.5, 0.9)), config=SMALL
    )
    assert (out > -INF).sum(1).tolist() == [4, 5, 3, 3]
    assert (out[0] > -INF).nonzero()[:, 0].tolist() == [3, 4, 5, 6]


def test_forbidden_rows_and_broken_numbers(device: torch.device) -> None:
    logits = torch.randn(4, 50, generator=torch.Generator().manual_seed(2))
    logits[0] = -INF
    logits[1, 7] = NAN
    logits[2, [4, 9]] = INF
    logits[3, 1:] = -INF
    cuts = Cuts(torch.ones(4), floats(0.0, 0.1, 0.1, 1.0), torch.full((4,), 10), torch.full((4,), 0.8))
    out = check(logits, device, cuts=cuts, config=SMALL)
    assert (out > -INF).sum(1).tolist()[0] == 0
    assert out[1].isnan().all(), "NaN spreads over its row, so that no token is drawn from it"
    assert (out[2] > -INF).nonzero()[:, 0].tolist() == [4, 9]
    assert out[3, 0] == 0


def test_extreme_temperatures(device: torch.device) -> None:
    logits = torch.randn(4, 40, generator=torch.Generator().manual_seed(3))
    logits[:, 30] = logits[:, 2] = 9.0
    cuts = Cuts(floats(1e-38, 1e-45, 3e38, 1e-3), None, None, torch.full((4,), 0.95))
    out = check(logits, device, cuts=cuts, config=SMALL)
    assert (out[0] > -INF).nonzero()[:, 0].tolist() == [2, 30]
    assert (out[2] > -INF).sum() == 38


def penalties_for(logits: torch.Tensor) -> Penalties:
    size, vocab_size = logits.shape
    counts = torch.where(torch.rand(size, vocab_size) < 0.2, torch.randint(1, 5, (size, vocab_size)), 0)
    return Penalties(
        counts.int(), torch.rand(size, vocab_size) < 0.2, 0.5 + torch.rand(size), torch.rand(size), torch.randn(size)
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_bias_penalties_and_bitmask(dtype: torch.dtype, device: torch.device) -> None:
    torch.manual_seed(4)
    logits = torch.randn(3, 77).to(dtype)
    bias = Bias(torch.tensor([[5, 70, 5], [-1, -1, -1], [0, 76, -1]]), torch.randn(3, 3))
    penalties, bitmask = penalties_for(logits), torch.randint(-(2**31), 2**31, (3, 3)).int()
    out = check(logits, device, bias, penalties, bitmask, config=SMALL)
    for row in range(3):
        for i in range(77):
            x = float(logits[row, i].float())
            for each, value in zip(bias.ids[row].tolist(), bias.values[row].tolist(), strict=True):
                x += value if each == i else 0.0
            count, ratio = int(penalties.output_counts[row, i]), float(penalties.repetition[row])
            if count or penalties.is_in_prompt[row, i]:
                x = x / ratio if x > 0 else x * ratio
            x -= float(penalties.frequency[row]) * count + float(penalties.presence[row]) * (count > 0)
            is_allowed = int(bitmask[row, i // 32]) >> (i % 32) & 1
            assert out[row, i] == pytest.approx(x, abs=1e-5) if is_allowed else out[row, i] == -INF


def test_everything_at_once(device: torch.device) -> None:
    torch.manual_seed(5)
    logits = 3 * torch.randn(5, 300)
    bias = Bias(torch.randint(0, 300, (5, 2)).int(), torch.randn(5, 2))
    bitmask = torch.randint(-(2**31), 2**31, (5, 10)).int()
    check(
        logits,
        device,
        bias,
        penalties_for(logits),
        bitmask,
        random_cuts(5),
        config=LaunchConfig(64, 1, 128, 1),
    )


def test_views_rows_that_share_counts_and_writing_in_place(device: torch.device) -> None:
    torch.manual_seed(6)
    wide = torch.randn(4, 90)
    logits = wide[:, 5:85]
    penalties = penalties_for(logits)
    shared = penalties._replace(
        output_counts=penalties.output_counts[:1].expand(4, -1), is_in_prompt=penalties.is_in_prompt[:1].expand(4, -1)
    )  # fmt: skip
    cuts = random_cuts(4)
    expected = check(logits, device, penalties=shared, cuts=cuts, config=SMALL)
    there = wide.to(device)
    part = there[:, 5:85]
    given = {"penalties": moved(shared, device), "cuts": moved(cuts, device)}
    assert process_logits(part, out=part, config=SMALL, **given) is part
    assert torch.equal(part.cpu(), expected)
    assert torch.equal(there[:, :5].cpu(), wide[:, :5])
    assert torch.equal(there[:, 85:].cpu(), wide[:, 85:])


def test_nothing_asked_for_is_a_copy_in_float32(device: torch.device) -> None:
    logits = torch.randn(2, 40, generator=torch.Generator().manual_seed(7)).half()
    assert torch.equal(check(logits, device), logits.float())
    greedy = Cuts(torch.zeros(2), torch.ones(2), torch.ones(2, dtype=torch.int32), floats(0.1, 0.1))
    assert torch.equal(check(logits, device, cuts=greedy), logits.float())


def test_cuts_are_those_of_core(device: torch.device) -> None:
    torch.manual_seed(8)
    logits = (4 * torch.randn(10, 200)).round() / 2  # with many ties
    cuts = random_cuts(10)
    out = check(logits, device, cuts=cuts, config=LaunchConfig(64, 1, 128, 1))
    assert torch.equal(out, cut_by_core(logits, cuts))


def test_penalties_are_those_of_core(device: torch.device) -> None:
    torch.manual_seed(9)
    logits, text = torch.randn(3, 30), np.array([4, 4, 9, 2, 9, 9, 7], np.int32)
    params = SamplingParams(
        temperature=0.0, repetition_penalty=1.3, presence_penalty=0.25, frequency_penalty=0.5
    )
    rules = RequestRules([PenaltyRule(params)], None)
    block = RowBlock(params, nodes=(7, 1), rules=rules, committed=text, num_prompt_tokens=3)
    expected = p_logits(logits, [block])
    counts = torch.zeros(3, 30, dtype=torch.int32)
    for row, path in enumerate(block.paths()):
        for token in [*text[3:].tolist(), *path]:
            counts[row, token] += 1
    is_in_prompt = torch.zeros(30, dtype=torch.bool)
    is_in_prompt[[4, 9]] = True
    penalties = Penalties(
        counts, is_in_prompt.expand(3, -1), *(torch.full((3,), x) for x in (1.3, 0.25, 0.5))
    )
    assert torch.equal(check(logits, device, penalties=penalties, config=SMALL), expected)


def test_no_rows(device: torch.device) -> None:
    cuts = Cuts(torch.empty(0, device=device))
    assert process_logits(torch.empty((0, 8), device=device), cuts=cuts).shape == (0, 8)


def test_wrong_arguments_are_named() -> None:
    logits, ids = torch.zeros(2, 40), torch.zeros((2, 1), dtype=torch.int64)
    penalties = penalties_for(logits)
    for name, wrong in {
        "bias.ids": {"bias": Bias(ids[0], floats(1.0))},
        "bias.values": {"bias": Bias(ids, ids)},
        "penalties.output_counts": {"penalties": penalties._replace(output_counts=penalties.is_in_prompt)},
        "penalties.presence": {"penalties": penalties._replace(presence=floats(1.0))},
        "bitmask": {"bitmask": torch.zeros((2, 1), dtype=torch.int32)},
        "cuts.temperatures": {"cuts": Cuts(floats(1.0))},
        "cuts.top_k": {"cuts": Cuts(torch.ones(2), top_k=torch.ones(2))},
        "out": {"out": torch.zeros(2, 41)},
    }.items():
        with pytest.raises(ValueError, match=name):
            process_logits(logits, **wrong)
    with pytest.raises(ValueError, match="cut_block_v=3"):
        LaunchConfig(16, 1, 3, 1)


MUTANTS = {
    "keeps all ties": ("rank <= room)", "rank <= 999)"),
    "keeps one tie too few": ("rank <= room)", "rank < room)"),
    "forgets the ties of earlier tiles": ("rank = num_equal + tl.cumsum", "rank = tl.cumsum"),
    "cuts top-p among all ids": ("room * weight\n", "room * weight + 2199023255552\n"),
    "leaves the ties at the border of top-k out of the mass": ("+ room * weight\n", "\n"),
    "rounds ties at the border of top-p down": ("(missing + weight - 1) //", "missing //"),
    "searches half of the bits": ("for _ in range(16)", "for _ in range(8)"),
    "multiplies positive logits": ("logits > 0.0, tl.div_rn", "logits < 0.0, tl.div_rn"),
    "takes the prompt for output": ("tl.where(counts > 0.0, tl.load(", "tl.where(is_in_prompt, tl.load("),
    "reads the bitmask from the other end": ("(ids % 32)) & 1", "(31 - ids % 32)) & 1"),
    "heats from 0": ("tl.div_rn(logits - best, divisor)", "tl.div_rn(logits, divisor)"),
    "turns min-p round": ("found < floor", "found > floor"),
    "overlooks a NaN": ("(logits != logits).to(tl.int32)", "(logits < logits).to(tl.int32)"),
    "forgets the NaN of another tile": ("(bests != bests) | (logits", "(bests < bests) | (logits"),
    "cuts a row with a NaN": ("& (best == best)", "& (vocab_size > 0)"),
}  # fmt: skip


@pytest.mark.interpreter
@pytest.mark.parametrize("name", [None, *MUTANTS])
def test_a_wrong_kernel_fails(name: str | None, check_mutant) -> None:
    cpu = torch.device("cpu")
    torch.manual_seed(10)
    logits = torch.randint(-3, 4, (3, 70)).float()
    logits[0, 3] = NAN
    cuts = Cuts(
        floats(1.0, 0.5, 2.0), floats(0.0, 0.0, 0.1), torch.tensor([30, 0, 20]), floats(1.0, 0.6, 0.7)
    )
    bitmask = torch.randint(-(2**31), 2**31, (3, 3)).int()
    penalties = penalties_for(logits)

    def check_all() -> None:
        check(logits, cpu, None, penalties, bitmask, Cuts(torch.zeros(3)), config=SMALL)
        check(logits, cpu, cuts=cuts, config=SMALL)
        check(logits, cpu, cuts=cuts._replace(top_k=None, top_p=None), config=SMALL)
        check(logits, cpu, config=SMALL)
        check(torch.linspace(-2, 2, 30)[None], cpu, cuts=Cuts(floats(1.0), None, None, floats(0.7)))
        test_equal_ids_share_the_mass_exactly(cpu)

    check_mutant("process_logits", None if name is None else MUTANTS[name], check_all)
