"""Compiled products with weights of 8 and 4 bits, and whole passes and chains of models that have them, beside torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from kernelcheck import from_python
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from specdec.interfaces.draws import NoiseKeys
from specdec_kernels.cpu.compiled.team import make_team
from specdec_kernels.cpu.form import CompiledForm
from specdec_kernels.cpu.linear import QuantizedProduct
from specdec_kernels.cpu.loops.byte_sums import HAS_BYTE_SUMS, product_rounded
from specdec_kernels.cpu.loops.quantized import product_quantized
from specdec_runtime.interfaces import ChainRules, ChainWork, NewRows, PackedBatch, QuantizedLinear, Segment
from specdec_runtime.runner import ModuleRunner

ALONE = make_team(1)
rounded_product = from_python(product_rounded)


def packed(num_out: int, depth: int, group: int | None, bias: bool = False) -> QuantizedLinear:
    """Random weights: of 8 bits, or with a group size of 4."""
    added = torch.randn(num_out) if bias else None
    if group is None:
        numbers = torch.randint(-127, 128, (num_out, depth), dtype=torch.int8)
        return QuantizedLinear(numbers, torch.rand(num_out, 1) / 127 / depth**0.5, added)
    halves = torch.randint(0, 256, (num_out, depth // 2), dtype=torch.uint8)
    return QuantizedLinear(
        halves, (torch.randn(num_out, depth // group, 2) / 8 / depth**0.5).bfloat16(), added
    )


@pytest.mark.parametrize(
    ("depth", "group"), [(1, None), (70, None), (576, None), (32, 32), (96, 32), (192, 64), (256, 128)]
)
@pytest.mark.parametrize("num_rows", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize("sizes", [(1,), (8,), (10, 3, 6)])
@pytest.mark.sampled(20, slow=20)
def test_products_are_those_of_the_widened_weights(depth, group, num_rows, sizes) -> None:
    torch.manual_seed(depth + num_rows)
    linears = [packed(size, depth, group) for size in sizes]
    expected = torch.cat([linear.weight(torch.float64) for linear in linears])
    product = QuantizedProduct(linears)
    assert torch.equal(torch.cat([linear.weight(torch.float64) for linear in linears]), expected)
    x, out = torch.randn(num_rows, depth), np.full((num_rows, sum(sizes)), np.nan, np.float32)
    from_python(product_quantized)(ALONE.ctypes.data, x.numpy(), product.compact, linears[0].group_size, out)
    wanted = x.double() @ expected.T
    assert torch.allclose(
        torch.from_numpy(out).double(), wanted, rtol=1e-5, atol=1e-5 * float(wanted.abs().max())
    )


@pytest.mark.skipif(not HAS_BYTE_SUMS, reason="this processor does not sum products of bytes")
@pytest.mark.parametrize(
    ("depth", "group"), [(32, 32), (96, 32), (128, 32), (576, 32), (192, 64), (256, 128), (768, 256)]
)
@pytest.mark.parametrize("num_rows", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize("sizes", [(4,), (5,), (10, 3, 6)])
def test_rounded_products_are_those_of_rows_rounded_by_block(depth, group, num_rows, sizes) -> None:
    torch.manual_seed(depth + num_rows)
    product = QuantizedProduct(linears := [packed(size, depth, group) for size in sizes])
    x, out = torch.randn(num_rows, depth), np.full((num_rows, sum(sizes)), np.nan, np.float32)
    x[0, :32] = 0.0
    x[-1, -32:] *= 1000.0
    rounded_product(ALONE.ctypes.data, x.numpy(), product.compact, group, out)
    blocks = x.view(num_rows, -1, 32)
    most = blocks.abs().amax(2, keepdim=True)
    numbers = torch.where(most > 0, (blocks * (127 / most)).round(), 0.0).double()
    rounded = (numbers * (most / 127).double()).view(num_rows, depth)
    weight = torch.cat([linear.weight(torch.float64) for linear in linears])
    least = torch.cat([linear.scales for linear in linears])[..., 0].double().repeat_interleave(group, 1)
    wanted = rounded @ (weight - least).T + x.double() @ least.T
    close = 1e-5 * wanted.abs().amax(1, keepdim=True)
    assert ((torch.from_numpy(out).double() - wanted).abs() <= close).all()
    alone = np.empty_like(out)
    for row in range(num_rows):
        rounded_product(
            ALONE.ctypes.data, x[row : row + 1].numpy(), product.compact, group, alone[row : row + 1]
        )
    assert np.array_equal(out, alone)


@pytest.mark.skipif(not HAS_BYTE_SUMS, reason="this processor does not sum products of bytes")
@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_rounded_products_of_a_broken_row_are_broken_and_others_are_not(number) -> None:
    product = QuantizedProduct([packed(8, 96, 32)])
    x, out, clean = torch.randn(2, 96), np.empty((2, 8), np.float32), np.empty((2, 8), np.float32)
    rounded_product(ALONE.ctypes.data, x.numpy(), product.compact, 32, clean)
    x[0, 40] = number
    rounded_product(ALONE.ctypes.data, x.numpy(), product.compact, 32, out)
    assert not np.isfinite(out[0]).any()
    assert np.array_equal(out[1], clean[1])


def test_joined_weights_are_stored_once() -> None:
    linears = [packed(4, 64, 32), packed(8, 64, 32)]
    product = QuantizedProduct(linears)
    memory = product.weight.untyped_storage().data_ptr()
    assert all(
        part.untyped_storage().data_ptr() == memory for each in linears for part in (each.packed, each.scales)
    )


def make_runner(group: int | None, head_group: int | None, dtype: torch.dtype, bias: bool) -> ModuleRunner:
    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=61, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, attention_bias=bias,
    )  # fmt: skip
    model = LlamaForCausalLM(config).to(dtype).eval()
    for name, linear in list(model.named_modules()):
        if type(linear) is nn.Linear:
            own = head_group if name == "lm_head" else group
            model.set_submodule(
                name, packed(linear.out_features, linear.in_features, own, linear.bias is not None)
            )
    runner = ModuleRunner(model, torch.device("cpu"), 128, is_draft=True)
    runner.allocate(64)
    for tensor in (*runner.cache.keys.values(), *runner.cache.values.values()):
        tensor.fill_(float("nan"))
    return runner


@pytest.mark.parametrize(
    ("group", "head_group", "dtype", "bias"),
    [
        (None, None, torch.float32, False),
        (None, None, torch.bfloat16, True),
        (32, 32, torch.float32, True),
        (32, None, torch.bfloat16, False),
    ],
)
def test_passes_and_chains_are_those_of_the_model(group, head_group, dtype, bias) -> None:
    runner = make_runner(group, head_group, dtype, bias)
    form, own = runner.forms[0][0], runner.forms[0][-1]
    assert isinstance(form, CompiledForm)
    ids = torch.tensor([7, 30, 2, 55, 9])
    batch = PackedBatch(ids, torch.arange(5), [Segment(0, 5, 16, 0)], None, None)
    with torch.inference_mode():
        ours, theirs = form.forward(batch, None).logits.float(), own.forward(batch, None).logits.float()
    assert (ours - theirs).norm() < (1e-5 if dtype == torch.float32 else 3e-2) * theirs.norm()
    form._stack.tables = form._stack.draft_tables
    with torch.inference_mode():
        rounded = form.forward(batch, None).logits.float()
    assert torch.equal(rounded, ours) == (not HAS_BYTE_SUMS or 32 not in (group, head_group))
    assert (rounded - ours).norm() < 3e-2 * ours.norm()

    zero = np.zeros(1, np.int64)
    work = ChainWork([16], [0], 4, [0.0], NoiseKeys(zero, zero, zero), ChainRules(61))
    drafted = runner.draft_after(NewRows(ids.numpy(), [5]), work).token_ids[0].tolist()
    known, expected = ids.tolist(), []
    for _ in range(4):
        count = len(known)
        batch = PackedBatch(torch.tensor(known), torch.arange(count), [Segment(0, count, 32, 0)], None, None)
        expected.append(int(form.forward(batch, None).logits[-1].argmax()))
        known.append(expected[-1])
    assert drafted == expected
