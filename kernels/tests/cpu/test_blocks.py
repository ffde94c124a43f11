"""Compiled products with weights in blocks, and whole passes of models that have them, beside torch."""

from __future__ import annotations

import copy

import pytest
import torch
from random_blocks import in_blocks, random_weights
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from specdec_kernels.cpu.form import CompiledForm
from specdec_kernels.cpu.linear import BlockProduct, ModuleProduct
from specdec_runtime.interfaces import BlockLinear, PackedBatch, Segment
from specdec_runtime.interfaces.blocks import KINDS, rounded
from specdec_runtime.runner import ModuleRunner

MIXED = {"": "Q4_K", "v_proj": "Q6_K", "down_proj": "Q6_K", "embed_tokens": "Q8_0", "lm_head": "Q5_1"}


def linear(kind: str, num_out: int, depth: int, seed: int = 0) -> tuple[BlockLinear, torch.Tensor]:
    """A module of a kind and its weights in float64."""
    module = BlockLinear(kind, num_out, depth)
    module.weight.data, weights = random_weights(kind, num_out, depth, seed)
    return module, weights.double()


def distances(got: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((got.double() - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("num_out", "depth"), [(1, 256), (16, 512), (41, 768)])
def test_products_are_those_of_the_widened_weights(kind, num_out, depth) -> None:
    torch.manual_seed(depth)
    module, weight = linear(kind, num_out, depth)
    product, x = BlockProduct([module]), torch.randn(9, depth)
    x[0, :40] = 0.0
    x[1, 3] *= 1000.0
    x[2] *= 1e-20
    wanted = x.double() @ weight.T
    exact = product(x)
    sizes, weights = x.double().abs(), weight.abs()
    most, sums = sizes.view(9, -1, 32).amax(2), weights.view(num_out, -1, 32).sum(2)
    bound = (
        2**-22 * (sizes @ weights.T) + 2**-23 * (most @ sums.T) + 1e-28
    )  # of float32 sums, and of whole numbers
    assert ((exact.double() - wanted).abs() <= bound).all()
    half = product(x.bfloat16().float().to(torch.bfloat16)).double()
    assert distances(half[3:], (x.bfloat16().double() @ weight.T)[3:]) < 4e-3
    module.input_bits = 8
    wanted = rounded(x).double() @ weight.T
    assert distances(BlockProduct([module])(x)[3:], wanted[3:]) < 1e-6


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bits", [24, 16, 8])
def test_a_row_alone_has_the_bits_that_it_has_among_others(kind, bits) -> None:
    modules = [linear(each, 24, 512, seed)[0] for seed, each in enumerate((kind, "Q6_K"))]
    for module in modules:
        module.input_bits = bits
    product = BlockProduct(modules)
    x = torch.randn(70, 512).to(torch.float32 if bits != 16 else torch.bfloat16)
    together = product(x)
    assert all(torch.equal(product(x[row : row + 1])[0], together[row]) for row in range(70))
    assert all(torch.equal(product(x[:count]), together[:count]) for count in (2, 5, 8, 33))


@pytest.mark.parametrize("kind", KINDS)
def test_many_rows_are_multiplied_with_widened_weights(kind) -> None:
    """As on processors with matrix tiles: a few weights at a time, those of two modules one after another."""
    torch.manual_seed(3)
    (first, wide), (second, other) = linear(kind, 1041, 256), linear("Q6_K", 24, 256, seed=1)
    first.bias, second.bias = (
        nn.Parameter(torch.randn(module.out_features), requires_grad=False) for module in (first, second)
    )
    for module in (first, second):
        module.input_bits = 16
    product, x = BlockProduct([first, second]), torch.randn(9, 256).bfloat16()
    product.max_product_rows = 8
    wanted = x.double() @ torch.cat((wide, other)).bfloat16().double().T
    wanted += torch.cat((first.bias, second.bias)).double()
    got = product(x)
    assert got.dtype == torch.bfloat16
    assert got.shape == wanted.shape
    assert distances(got, wanted) < 4e-3
    few = product(x[:8])
    assert distances(few, wanted[:8]) < 6e-3
    product.max_product_rows = 9
    assert torch.equal(product(x)[:8], few)


def test_long_passes_of_wide_models_are_widened_where_tiles_win(monkeypatch) -> None:
    monkeypatch.setattr("specdec_kernels.cpu.linear.HOST_FEATURES", {"amx-bf16": True})
    monkeypatch.setattr("specdec_kernels.cpu.linear._MAX_BLOCK_ROWS_BESIDE_TILES", 8)
    monkeypatch.setattr("specdec_kernels.cpu.pass_chunks._MAX_WEIGHT_BYTES", 1 << 20)
    narrow, wide = runners({"": "Q4_0"}, torch.bfloat16)
    widened = list[int]()
    monkeypatch.setattr(
        BlockProduct, "_by_widening", lambda self, x, of=BlockProduct._by_widening: widened.append(len(x)) or of(self, x)
    )  # fmt: skip
    for count in (8, 40):
        ids = torch.arange(count) % 77
        batch = PackedBatch(ids, torch.arange(count), [Segment(0, count, 0, 0)], None, None)
        got, wanted = (runner.forward(batch).logits.float() for runner in (narrow, wide))
        assert distances(got, wanted.double()) < 2e-2
        assert bool(widened) == (count == 40)
    assert set(widened) == {40}


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_broken_row_is_broken_and_others_are_not(number) -> None:
    product, x = BlockProduct([linear("Q4_0", 16, 96)[0]]), torch.randn(3, 96)
    clean = product(x)
    x[1, 40] = number
    broken = product(x)
    assert not broken[1].isfinite().any()
    assert torch.equal(broken[::2], clean[::2])


def test_a_modules_product_takes_any_shape_and_has_its_bias() -> None:
    module, weight = linear("Q5_K", 40, 256)
    module.bias = nn.Parameter(torch.randn(40), requires_grad=False)
    x = torch.randn(2, 3, 256)
    wanted = x.double() @ weight.T + module.bias.double()
    product = ModuleProduct(module)
    module.forward = product
    assert distances(module(x), wanted) < 1e-6
    assert distances(copy.deepcopy(module)(x), wanted) < 1e-6


def runners(
    kinds: dict[str, str], dtype: torch.dtype, *, tied: bool = False
) -> tuple[ModuleRunner, ModuleRunner]:
    """A model in blocks and the same widened."""
    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=77, hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, tie_word_embeddings=tied,
    )  # fmt: skip
    wide = LlamaForCausalLM(config).to(dtype).eval()
    made = dict(in_blocks(wide, kinds))
    narrow = copy.deepcopy(wide)
    for name, module in made.items():
        if isinstance(module, BlockLinear):
            module.input_bits = 24 if dtype == torch.float32 else 16
        narrow.set_submodule(name, module)
    both = []
    for model in (narrow, wide):
        runner = ModuleRunner(model, torch.device("cpu"), 128)
        runner.allocate(64)
        both.append(runner)
    return both[0], both[1]


@pytest.mark.parametrize(
    ("kinds", "dtype"),
    [
        (MIXED, torch.float32),
        ({"": "Q4_0"}, torch.float32),
        (MIXED, torch.bfloat16),
        ({"_proj": "Z4_128", "v_proj": "Z8_32"}, torch.float32),
    ],
)
def test_passes_are_those_of_the_widened_model(kinds, dtype) -> None:
    narrow, wide = runners(kinds, dtype)
    assert isinstance(narrow.forms[0][0], CompiledForm)
    ids = torch.tensor([7, 30, 2, 55, 9])
    outputs = [
        runner.forward(PackedBatch(ids, torch.arange(5), [Segment(0, 5, 16, 0)], None, None)).logits.float()
        for runner in (narrow, wide)
    ]
    assert distances(outputs[0], outputs[1].double()) < (1e-5 if dtype == torch.float32 else 5e-2)
    alone = narrow.forward(
        PackedBatch(ids[4:], torch.tensor([4]), [Segment(0, 1, 16, 4)], None, None)
    ).logits.float()
    assert torch.equal(alone[0], outputs[0][4])
