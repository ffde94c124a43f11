"""`gumbel_sample`: the reference against core and the distribution it draws from, the kernel against the reference."""

import pytest
import torch
from kernelcheck import POISON

from specdec.noise import exponentials, row_operations
from specdec_kernels.triton.gumbel_sample import gumbel_sample
from specdec_kernels.triton.gumbel_sample.reference import apply_temperature, gumbel_sample_reference
from specdec_kernels.triton.noise import NoiseKeys
from specdec_kernels.triton.noise.config import LaunchConfig

# Infinities are part of the arithmetic here; the interpreter's numpy warns of them where a GPU goes on.
pytestmark = pytest.mark.filterwarnings("ignore:.* encountered in :RuntimeWarning")

INF = float("inf")


def keys_for(num_rows: int, seed: int = 0) -> NoiseKeys:
    rows = torch.arange(num_rows)
    return NoiseKeys(rows * 7919 + seed, rows + 5, rows % 2)


def check(logits, temperatures, keys, words, device, **options) -> list[int]:
    """Run on `device` into a poisoned output and compare with the reference, whose two best scores must be apart."""
    temperatures = torch.tensor(temperatures)
    noise = -exponentials(
        *keys, torch.zeros_like(keys.seeds) if words is None else words, logits.shape[1]
    ).log()
    scores = apply_temperature(logits, temperatures) + noise
    if logits.shape[1] > 1:
        first, second = scores.topk(2, 1).values.unbind(1)
        assert ((first - second > 1e-5) | (temperatures == 0) | (first == -INF)).all()
    out = torch.full((len(logits),), POISON, device=device)
    given = (logits.to(device), temperatures.to(device), NoiseKeys(*(key.to(device) for key in keys)))
    assert gumbel_sample(*given, None if words is None else words.to(device), out=out, **options) is out
    expected = gumbel_sample_reference(logits, temperatures, keys, words)
    assert out.tolist() == expected.tolist()
    return out.tolist()


@pytest.mark.parametrize("vocab_size", [1, 2, 33, 8193, 50257, pytest.param(151936, marks=pytest.mark.full)])
def test_odd_sizes(vocab_size: int, device: torch.device) -> None:
    torch.manual_seed(vocab_size)
    logits = 3 * torch.randn(4, vocab_size)
    check(logits, [1.0, 0.0, 0.6, 2.5], keys_for(4), None, device)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_other_types(dtype: torch.dtype, device: torch.device) -> None:
    torch.manual_seed(1)
    logits = torch.randn(6, 1000).to(dtype)
    check(logits, [1.0, 0.0, 0.7, 1.0, 1.3, 0.2], keys_for(6), torch.arange(6), device)


@pytest.mark.parametrize("block_v", [16, 64])
def test_tiles_make_no_difference(block_v: int, device: torch.device) -> None:
    torch.manual_seed(2)
    logits = torch.randn(8, 300)
    check(logits, [1.0] * 8, keys_for(8), None, device, config=LaunchConfig(block_v, num_warps=1))


def test_greedy_ties_go_to_the_lowest_id_and_a_nan_never_wins(device: torch.device) -> None:
    logits = torch.full((4, 200), -1.0)
    logits[0, [5, 130, 64]] = 2.0
    logits[1, [3, 199]] = torch.tensor([float("nan"), 1.0])
    logits[2] = float("nan")
    logits[3, 150] = INF
    config = LaunchConfig(16, num_warps=1)
    assert check(logits, [0.0] * 4, keys_for(4), None, device, config=config) == [5, 199, 0, 150]


def test_forbidden_ids_are_never_drawn(device: torch.device) -> None:
    logits = torch.full((24, 40), -INF)
    logits[:, [17, 38]] = torch.tensor([0.0, 0.1])
    logits[23] = -INF
    found = check(logits, [1.0] * 24, keys_for(24), None, device, config=LaunchConfig(16, num_warps=1))
    assert set(found[:23]) == {17, 38}
    assert found[23] == 0


def test_equal_bests_stay_equal_at_any_temperature(device: torch.device) -> None:
    """Nothing of the noise is lost to logits that are large or divided by little."""
    logits = torch.zeros(24, 50)
    logits[:, [4, 20, 49]] = 1000.0
    config = LaunchConfig(32, num_warps=1)
    for temperature in (1e-38, 1e-3, 1.0):
        found = check(logits, [temperature] * 24, keys_for(24), None, device, config=config)
        assert set(found) == {4, 20, 49}
    hot = check(logits, [3e38] * 24, keys_for(24), None, device, config=config)
    assert len(set(hot)) > 12


def test_rows_do_not_depend_on_their_neighbours(device: torch.device) -> None:
    torch.manual_seed(4)
    logits, keys = torch.randn(9, 300)[:, 7:240], keys_for(9)
    assert not logits.is_contiguous()
    together = check(logits, [1.0] * 9, keys, None, device)
    order = torch.randperm(9)
    apart = check(logits[order], [1.0] * 9, NoiseKeys(*(key[order] for key in keys)), None, device)
    assert apart == [together[i] for i in order]


def test_tokens_are_those_of_core(device: torch.device) -> None:
    torch.manual_seed(5)
    logits, keys = 2 * torch.randn(16, 500), keys_for(16, seed=11)
    words = torch.arange(16)
    operations = row_operations(torch.device("cpu"))
    expected = operations.multinomial(torch.softmax(logits / 0.8, -1), *(key.numpy() for key in keys), words)
    assert check(logits, [0.8] * 16, keys, words, device) == expected.tolist()


def test_draws_follow_the_softmax() -> None:
    logits = torch.tensor([0.0, 1.0, -1.0, 2.0, -INF, 0.5])
    count = 40_000
    keys = NoiseKeys(torch.full((count,), 9), torch.arange(count), torch.zeros(count, dtype=torch.int64))
    found = gumbel_sample(logits.expand(count, -1).contiguous(), torch.full((count,), 1.5), keys)
    observed = torch.bincount(found, minlength=6).double()
    expected = torch.softmax(logits.double() / 1.5, -1) * count
    assert observed[4] == 0
    keep = expected > 0
    assert ((observed - expected)[keep] ** 2 / expected[keep]).sum() < 20.5  # chi-square, 4 degrees, 0.04 %


def test_no_rows(device: torch.device) -> None:
    empty = torch.empty(0, dtype=torch.int64, device=device)
    result = gumbel_sample(torch.empty((0, 8), device=device), empty.float(), NoiseKeys(empty, empty, empty))
    assert result.shape == (0,)


def test_wrong_arguments_are_named() -> None:
    logits, temperatures, keys = torch.zeros(2, 5), torch.ones(2), keys_for(2)
    for name, call in {
        "logits": lambda: gumbel_sample(torch.zeros(2, 0), temperatures, keys),
        "unit stride": lambda: gumbel_sample(torch.zeros(5, 2).T, temperatures, keys),
        "temperatures": lambda: gumbel_sample(logits, temperatures.double(), keys),
        "keys.samples": lambda: gumbel_sample(logits, temperatures, keys._replace(samples=temperatures)),
        "words": lambda: gumbel_sample(logits, temperatures, keys, keys.seeds[:1]),
        "out": lambda: gumbel_sample(logits, temperatures, keys, out=temperatures),
        "must be contiguous": lambda: (
            gumbel_sample(torch.zeros(1, 5), torch.ones(2)[::2], keys_for(1))
            and gumbel_sample(torch.zeros(2, 5), torch.ones(4)[::2], keys)
        ),
    }.items():
        with pytest.raises(ValueError, match=name):
            call()


MUTANTS = {
    "adds the same noise everywhere": ("tile, BLOCK_V)\n        scores -=", "0, BLOCK_V)\n        scores -="),
    "forgets where a tile begins": ("return score, tile * BLOCK_V + index", "return score, index"),
    "compares tiles from their own best": ("scaled_below(best, tl.max(best, 0), divisor) + score", "score"),
    "forgets the temperature": ("0.0, (logits - best) / divisor)", "0.0, logits - best)"),
    "heats greedy rows": ("tl.load(temperatures_ptr + row) > 0.0,", "True,"),
    "lets the padding of a tile win": ('ids < vocab_size, other=-float("inf")', "ids < vocab_size, other=9.0"),
    "lets a NaN win": ("tl.where(logits != logits, -float", "tl.where(logits != logits, float"),
    "forgets the word": ("word = tl.load(words_ptr + row)", "word = tl.full((), 0, tl.int64)"),
}  # fmt: skip


@pytest.mark.interpreter
@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_kernel_fails(name: str, check_mutant) -> None:
    torch.manual_seed(3)
    logits = torch.randn(8, 100)
    logits[0, 3] = float("nan")
    temperatures = [0.0, 1.0, 0.5, 2.0, 0.0, 1.0, 1.0, 3.0]
    config, cpu = LaunchConfig(32, num_warps=4), torch.device("cpu")
    given = (logits, temperatures, keys_for(8), torch.arange(8), cpu)

    def check_all() -> None:
        check(*given, config=config)

    check_mutant("gumbel_sample", None, check_all)
    check_mutant("gumbel_sample", MUTANTS[name], check_all)
