"""`process_logits` against core: the reference everywhere, the kernel where there is one."""

import pytest
import torch

from specdec import SamplingParams
from specdec.logits import apply_temperature_and_truncation
from specdec_kernels.triton.process_logits import Cuts, process_logits
from specdec_kernels.triton.process_logits.config import LaunchConfig
from specdec_kernels.triton.process_logits.reference import process_logits_reference

# Infinities are part of the arithmetic here; the interpreter's numpy warns of them where a GPU goes on.
pytestmark = pytest.mark.filterwarnings("ignore:.* encountered in :RuntimeWarning")

INF, NAN = float("inf"), float("nan")
SMALL = LaunchConfig(16, 1, 32, 1)


def moved(cuts: Cuts, device: torch.device) -> Cuts:
    """Cuts on a device."""
    return Cuts(*(None if each is None else each.to(device) for each in cuts))  # type: ignore[arg-type]  # the first is given


def check(logits, device, cuts: Cuts, **options) -> torch.Tensor:
    """Run on `device` into a poisoned output; equal to the reference, bit for bit, and returned."""
    out = torch.full(logits.shape, NAN, device=device)
    assert process_logits(logits.to(device), moved(cuts, device), out=out, **options) is out
    expected = process_logits_reference(logits, cuts)
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
    out = check(logits, device, cuts)
    assert torch.equal(out, cut_by_core(logits, cuts))


def test_ties_are_kept_from_the_lowest_id_on(device: torch.device) -> None:
    torch.manual_seed(1)
    logits = torch.randint(0, 3, (8, 70)).float()
    top_k = torch.tensor([1, 5, 20, 40, 69, 70, 0, 30], dtype=torch.int64)
    out = check(logits, device, Cuts(torch.ones(8), None, top_k, None), config=SMALL)
    assert (out > -INF).sum(1).tolist() == [1, 5, 20, 40, 69, 70, 70, 30]
    assert (out[1] > -INF).nonzero()[:, 0].tolist() == (logits[1] == 2).nonzero()[:5, 0].tolist()
    top_p = floats(0.01, 0.5, 0.9, 0.999, 0.25, 0.75, 1.0, 0.3)
    check(logits, device, Cuts(torch.ones(8), None, None, top_p))
    check(logits, device, Cuts(torch.ones(8), None, top_k, top_p))


def test_equal_ids_share_the_mass_exactly(device: torch.device) -> None:
    logits = torch.full((4, 40), -INF)
    logits[:, 3:11] = 5.0  # eight equal ids
    top_k = torch.tensor([0, 0, 6, 3], dtype=torch.int32)
    out = check(logits, device, Cuts(torch.ones(4), None, top_k, floats(0.5, 0.51, 0.5, 0.9)), config=SMALL)
    assert (out > -INF).sum(1).tolist() == [4, 5, 3, 3]
    assert (out[0] > -INF).nonzero()[:, 0].tolist() == [3, 4, 5, 6]


def test_forbidden_rows_and_broken_numbers(device: torch.device) -> None:
    logits = torch.randn(4, 50, generator=torch.Generator().manual_seed(2))
    logits[0] = -INF
    logits[1, 7] = NAN
    logits[2, [4, 9]] = INF
    logits[3, 1:] = -INF
    cuts = Cuts(torch.ones(4), floats(0.0, 0.1, 0.1, 1.0), torch.full((4,), 10), torch.full((4,), 0.8))
    out = check(logits, device, cuts, config=SMALL)
    assert (out > -INF).sum(1).tolist()[0] == 0
    assert out[1].isnan().all(), "NaN spreads over its row, so that no token is drawn from it"
    assert (out[2] > -INF).nonzero()[:, 0].tolist() == [4, 9]
    assert out[3, 0] == 0


def test_extreme_temperatures(device: torch.device) -> None:
    logits = torch.randn(4, 40, generator=torch.Generator().manual_seed(3))
    logits[:, 30] = logits[:, 2] = 9.0
    cuts = Cuts(floats(1e-38, 1e-45, 3e38, 1e-3), None, None, torch.full((4,), 0.95))
    out = check(logits, device, cuts, config=SMALL)
    assert (out[0] > -INF).nonzero()[:, 0].tolist() == [2, 30]
    assert (out[2] > -INF).sum() == 38


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_other_types(dtype: torch.dtype, device: torch.device) -> None:
    torch.manual_seed(4)
    logits, cuts = (3 * torch.randn(5, 77)).to(dtype), random_cuts(5)
    assert torch.equal(check(logits, device, cuts, config=SMALL), cut_by_core(logits.float(), cuts))
    check(logits, device, cuts._replace(top_k=None, top_p=None), config=SMALL)


def test_views_and_writing_in_place(device: torch.device) -> None:
    torch.manual_seed(6)
    wide = torch.randn(4, 90)
    cuts = random_cuts(4)
    expected = check(wide[:, 5:85], device, cuts, config=SMALL)
    there = wide.to(device)
    part = there[:, 5:85]
    assert process_logits(part, moved(cuts, device), out=part, config=SMALL) is part
    assert torch.equal(part.cpu(), expected)
    assert torch.equal(there[:, :5].cpu(), wide[:, :5])
    assert torch.equal(there[:, 85:].cpu(), wide[:, 85:])


def test_greedy_rows_are_a_copy_in_float32(device: torch.device) -> None:
    logits = torch.randn(2, 40, generator=torch.Generator().manual_seed(7)).half()
    assert torch.equal(check(logits, device, Cuts(torch.zeros(2))), logits.float())
    greedy = Cuts(torch.zeros(2), torch.ones(2), torch.ones(2, dtype=torch.int32), floats(0.1, 0.1))
    assert torch.equal(check(logits, device, greedy), logits.float())


def test_cuts_are_those_of_core(device: torch.device) -> None:
    torch.manual_seed(8)
    logits = (4 * torch.randn(10, 200)).round() / 2  # with many ties
    cuts = random_cuts(10)
    out = check(logits, device, cuts, config=LaunchConfig(64, 1, 128, 1))
    assert torch.equal(out, cut_by_core(logits, cuts))


def test_no_rows(device: torch.device) -> None:
    cuts = Cuts(torch.empty(0, device=device))
    assert process_logits(torch.empty((0, 8), device=device), cuts).shape == (0, 8)


def test_wrong_arguments_are_named() -> None:
    logits, right = torch.zeros(2, 40), Cuts(torch.ones(2))
    for name, cuts in {
        "cuts.temperatures": Cuts(floats(1.0)),
        "cuts.min_p": right._replace(min_p=floats(1.0)),
        "cuts.top_k": right._replace(top_k=torch.ones(2)),
        "cuts.top_p": right._replace(top_p=torch.ones(2).double()),
    }.items():
        with pytest.raises(ValueError, match=name):
            process_logits(logits, cuts)
    with pytest.raises(ValueError, match="out"):
        process_logits(logits, right, out=torch.zeros(2, 41))
    with pytest.raises(ValueError, match="cut_block=3"):
        LaunchConfig(16, 1, 3, 1)


MUTANTS = {
    "keeps all ties": ("rank <= room)", "rank <= 999)"),
    "keeps one tie too few": ("rank <= room)", "rank < room)"),
    "forgets the ties of earlier tiles": ("rank = num_equal + tl.cumsum", "rank = tl.cumsum"),
    "cuts top-p among all ids": ("room * weight\n", "room * weight + 2199023255552\n"),
    "leaves the ties at the border of top-k out of the mass": ("+ room * weight\n", "\n"),
    "rounds ties at the border of top-p down": ("(missing + weight - 1) //", "missing //"),
    "searches half of the bits": ("for _ in range(16)", "for _ in range(8)"),
    "forgets the ids before a digit": ("(before + tl.cumsum(counts, 0) < rank)", "(tl.cumsum(counts, 0) < rank)"),
    "takes the lowest digit for the highest": ("before, 21, 2048", "before, 0, 2048"),
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

    def check_all() -> None:
        check(logits, cpu, Cuts(torch.zeros(3)), config=SMALL)
        check(logits, cpu, cuts, config=SMALL)
        check(logits, cpu, cuts._replace(top_k=None, top_p=None), config=SMALL)
        check(torch.linspace(-2, 2, 30)[None], cpu, Cuts(floats(1.0), None, None, floats(0.7)))
        test_equal_ids_share_the_mass_exactly(cpu)

    check_mutant("process_logits", None if name is None else MUTANTS[name], check_all)
