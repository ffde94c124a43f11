"""Noise: published vectors, and the operations against `specdec.noise`."""

import pytest
import torch

from specdec import noise
from specdec.noise import Stream, node_word
from specdec_kernels.triton.noise import NoiseKeys, gumbel_noise, uniforms
from specdec_kernels.triton.noise.config import LaunchConfig
from specdec_kernels.triton.noise.keys import counter_words


def keys_of(*rows: tuple[int, int, int, int]) -> tuple[NoiseKeys, torch.Tensor]:
    seeds, positions, samples, words = (
        column.contiguous() for column in torch.tensor(rows, dtype=torch.int64).unbind(1)
    )
    return NoiseKeys(seeds, positions, samples), words


KEYS = keys_of(
    (0, 0, 0, 0),
    (1, 2, 3, node_word(Stream.RESIDUAL, 4)),
    (-1, 2**32 - 1, 2**31, 2**32 - 1),
    (-(2**63), 131072, 0, node_word(Stream.ACCEPT, 63)),
    (0x1234_5678_9ABC_DEF0, 77, 1, node_word(Stream.DRAFT)),
)


def moved(keys: NoiseKeys, words: torch.Tensor, device: torch.device) -> tuple[NoiseKeys, torch.Tensor]:
    return NoiseKeys(*(key.to(device) for key in keys)), words.to(device)


def exact_uniforms(keys: NoiseKeys, words: torch.Tensor, num_ids: int) -> torch.Tensor:
    return noise.uniforms(*counter_words(keys, words), num_ids)


def exact_gumbel(keys: NoiseKeys, words: torch.Tensor, num_ids: int) -> torch.Tensor:
    return -noise.exponentials(*counter_words(keys, words), num_ids).log()


def check_uniforms(num_ids: int, device: torch.device, **options) -> None:
    out = torch.full((len(KEYS[1]), num_ids), float("nan"), dtype=torch.float64, device=device)
    assert uniforms(*moved(*KEYS, device), num_ids, out=out, **options) is out
    assert torch.equal(out.cpu(), exact_uniforms(*KEYS, num_ids))


def check_gumbel(num_ids: int, device: torch.device, **options) -> None:
    """Within twice the error of the same formula in float32."""
    out = torch.full((len(KEYS[1]), num_ids), float("nan"), device=device)
    assert gumbel_noise(*moved(*KEYS, device), num_ids, out=out, **options) is out
    exact = exact_gumbel(*KEYS, num_ids)
    plain = -(-torch.log1p(-exact_uniforms(*KEYS, num_ids).float())).log()
    plain = torch.where(plain.isfinite(), plain, exact.float())
    bound = 2 * (plain.double() - exact).abs().max() + 1e-6
    assert (out.cpu().double() - exact).abs().max() <= bound


def test_published_vectors(device: torch.device) -> None:
    """Of Random123, `kat_vectors`: Philox 4x32-10 of a counter and a key of zeros."""
    keys, words = moved(*keys_of((0, 0, 0, 0)), device)
    integers = uniforms(keys, words, 4) * 2.0**32 - 0.5
    assert [hex(int(i)) for i in integers[0].tolist()] == [
        "0x6627e8d5",
        "0xe169c58d",
        "0xbc57ac4c",
        "0x9b00dbd8",
    ]


@pytest.mark.parametrize("num_ids", [1, 3, 4, 33, 8193])
def test_odd_sizes(num_ids: int, device: torch.device) -> None:
    check_uniforms(num_ids, device)
    check_gumbel(num_ids, device)


@pytest.mark.parametrize("block_v", [4, 64])
def test_tiles_make_no_difference(block_v: int, device: torch.device) -> None:
    check_uniforms(130, device, config=LaunchConfig(block_v, num_warps=1))
    check_gumbel(130, device, config=LaunchConfig(block_v, num_warps=1))


def test_a_view_is_written_to_and_nothing_beside_it(device: torch.device) -> None:
    wide = torch.full((5, 40), -1.0, dtype=torch.float64, device=device)
    uniforms(*moved(*KEYS, device), 33, out=wide[:, 3:36])
    assert torch.equal(wide[:, 3:36].cpu(), exact_uniforms(*KEYS, 33))
    assert (wide[:, :3] == -1).all()
    assert (wide[:, 36:] == -1).all()


def test_both_ends_of_the_uniforms_keep_their_exponentials(device: torch.device) -> None:
    """The smallest and the largest of many draws, where float32 loses bits of 1 - u, or of u."""
    keys, words = keys_of((3, 0, 0, 0))
    exact = exact_gumbel(keys, words, 400_000)
    found = gumbel_noise(*moved(keys, words, device), 400_000).cpu().double()
    ends = torch.cat((exact.topk(50).indices[0], (-exact).topk(50).indices[0]))
    assert ((found - exact).abs() / exact.abs().clamp(min=1))[0, ends].max() < 5e-7


def test_no_rows(device: torch.device) -> None:
    empty = torch.empty(0, dtype=torch.int64, device=device)
    assert uniforms(NoiseKeys(empty, empty, empty), empty, 5).shape == (0, 5)


def test_wrong_arguments_are_named() -> None:
    keys, words = KEYS
    for name, call in {
        "num_ids": lambda: uniforms(keys, words, 0),
        "words": lambda: uniforms(keys, words.int(), 3),
        "keys.positions": lambda: uniforms(keys._replace(positions=words[:2]), words, 3),
        "keys.seeds": lambda: uniforms(NoiseKeys(*(k[None] for k in keys)), words, 3),
        "out": lambda: uniforms(keys, words, 3, out=torch.empty(5, 3)),
    }.items():
        with pytest.raises(ValueError, match=name):
            call()
    with pytest.raises(ValueError, match="block=2"):
        LaunchConfig(2, num_warps=1)


MUTANTS = {
    "swaps two lanes": ("tl.interleave(lane0, lane2)", "tl.interleave(lane2, lane0)"),
    "repeats the first tile": ("(tile * (BLOCK_V // 4) +", "("),
    "forgets the sample": ("zeros + sample.to(tl.uint32)", "zeros"),
    "forgets the word": ("zeros + word.to(tl.uint32)", "zeros"),
    "is off by half a step": ("words.to(tl.float64) + 0.5", "words.to(tl.float64)"),
    "lets small uniforms round away": ("tl.where(lost > 0.0, -tl.log(rest) * factor, uniforms)", "-tl.log(rest)"),
    "forgets a logarithm": ("noise = -tl.log(exponentials_of(", "noise = -(exponentials_of("),
}  # fmt: skip


@pytest.mark.interpreter
@pytest.mark.parametrize("name", [None, *MUTANTS])
def test_a_wrong_kernel_fails(name: str | None, check_mutant) -> None:
    cpu = torch.device("cpu")

    def check() -> None:
        check_uniforms(130, cpu, config=LaunchConfig(64, num_warps=1))
        check_gumbel(130, cpu, config=LaunchConfig(64, num_warps=1))
        test_both_ends_of_the_uniforms_keep_their_exponentials(cpu)

    check_mutant("noise", None if name is None else MUTANTS[name], check)
