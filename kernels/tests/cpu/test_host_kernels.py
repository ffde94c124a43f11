"""The compiled loops of the host path against torch, at odd sizes."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from kernelcheck import from_python
from numba import njit
from torch import nn

from specdec_kernels.cpu.compiled.math import fast_exp, narrow, widen
from specdec_kernels.cpu.linear import CompiledLinear
from specdec_kernels.cpu.loops.blend import row_blends
from specdec_kernels.cpu.loops.elementwise import (
    activate,
    add_norm,
    finish_logits,
    norm,
    norm_heads,
    rotate_and_store,
)
from specdec_kernels.cpu.loops.lanes import HAS_BFLOAT16_PAIRS
from specdec_kernels.cpu.loops.product import MAX_PRODUCT_ROWS, compact, multiply, product
from specdec_kernels.cpu.loops.scores import as_multiplied, score_keys
from specdec_kernels.cpu.loops.softmax import cap_scores
from specdec_kernels.layers.linear import JoinedLinear

ROUNDED = pytest.mark.skipif(
    not HAS_BFLOAT16_PAIRS, reason="this processor does not multiply bfloat16 numbers"
)

SIZES = [
    (1, 1, 1),
    (1, 7, 3),
    (2, 33, 5),
    (3, 64, 17),
    (4, 256, 31),
    (5, 100, 9),
    (7, 65, 2),
    (9, 31, 4),
    (32, 48, 6),
]


@pytest.mark.parametrize(("num_rows", "depth", "width"), SIZES)
@pytest.mark.parametrize("is_half", [False, True])
def test_product_equals_float64_within_twice_torchs_own_error(num_rows, depth, width, is_half):
    torch.manual_seed(num_rows * depth)
    x, weight = torch.randn(num_rows, depth), torch.randn(width, depth)
    if is_half:
        weight = weight.bfloat16().float()
    stored = compact(weight)
    assert stored is not None
    assert (stored.dtype == np.uint16) == is_half
    out = np.full((num_rows, width), np.nan, np.float32)
    product(x.numpy(), stored, out)
    exact = x.double() @ weight.double().T
    bound = 2 * (x @ weight.T - exact).abs().max() + 1e-6 * exact.abs().max()
    assert (torch.from_numpy(out) - exact).abs().max() <= bound


@ROUNDED
@pytest.mark.parametrize(("num_rows", "depth", "width"), SIZES)
def test_rounded_product_is_the_product_of_rounded_rows(num_rows, depth, width):
    torch.manual_seed(num_rows * depth)
    x, weight = torch.randn(num_rows, depth), torch.randn(width, depth).bfloat16()
    out = np.full((num_rows, width), np.nan, np.float32)
    multiply(x.numpy(), compact(weight), out, True)
    rounded = x.bfloat16()
    exact = rounded.double() @ weight.double().T
    bound = 2 * (rounded.float() @ weight.float().T - exact).abs().max() + 1e-6 * exact.abs().max()
    assert (torch.from_numpy(out) - exact).abs().max() <= bound


@pytest.mark.parametrize("is_rounded", [False, pytest.param(True, marks=ROUNDED)])
@pytest.mark.parametrize(("depth", "width"), [(256, 31), (100, 9)])
def test_a_rows_product_does_not_depend_on_the_others(depth, width, is_rounded):
    torch.manual_seed(depth)
    x, weight = torch.randn(19, depth).numpy(), compact(torch.randn(width, depth).bfloat16())
    whole = np.empty((19, width), np.float32)
    multiply(x, weight, whole, is_rounded)
    for start, end in ((0, 1), (3, 5), (4, 7), (0, 4), (7, 12), (2, 8), (5, 18)):
        part = np.empty((end - start, width), np.float32)
        multiply(x[start:end].copy(), weight, part, is_rounded)
        assert np.array_equal(part, whole[start:end])


@pytest.mark.parametrize(("num_rows", "length"), [(1, 1), (2, 7), (5, 33), (6, 4), (13, 5)])
@pytest.mark.parametrize("size", [1, 16, 24, 64, 80, 100])
@pytest.mark.parametrize("is_half", [False, True])
def test_blends_equal_float64(num_rows, length, size, is_half):
    torch.manual_seed(size)
    weights, values = torch.rand(num_rows, length), torch.randn(length + 3, 2, size)
    values = values.bfloat16() if is_half else values
    stored = values.view(torch.int16).numpy().view(np.uint16) if is_half else values.numpy()
    out = np.full((num_rows, size), np.nan, np.float32)
    blend(weights.numpy(), stored, 2, 1, out)
    exact = weights.double() @ values[2 : 2 + length, 1].double()
    np.testing.assert_allclose(out, exact.numpy(), rtol=0, atol=2e-6 * (1 + length) ** 0.5)


@njit
def blend(weights, values, start, head, out):
    row_blends(weights, values, start, head, weights.shape[1], out)


@pytest.mark.parametrize(("num_queries", "length"), [(1, 1), (3, 16), (5, 33), (8, 7), (15, 20), (17, 3)])
@pytest.mark.parametrize("depth", [1, 6, 7, 16, 32, 33, 64, 80])
@pytest.mark.parametrize("is_half", [False, True])
@pytest.mark.sampled(24, slow=36)
def test_scores_equal_float64(num_queries, length, depth, is_half):
    torch.manual_seed(depth)
    queries, keys = torch.randn(num_queries, depth), torch.randn(length + 2, 3, depth)
    if is_half:
        keys = keys.bfloat16()
        queries = queries.bfloat16().float() if HAS_BFLOAT16_PAIRS else queries
    stored = keys.view(torch.int16).numpy().view(np.uint16) if is_half else keys.numpy()
    out = np.full((num_queries, length + 15), np.nan, np.float32)
    score(queries.numpy(), stored, 2, 1, length, out)
    exact = queries.double() @ keys[2:, 1].double().T
    np.testing.assert_allclose(out[:, :length], exact.numpy(), rtol=0, atol=2e-6 * (1 + depth) ** 0.5)
    alone = np.full((1, length + 15), np.nan, np.float32)
    for r in (0, num_queries - 1):
        score(queries.numpy()[r : r + 1], stored, 2, 1, length, alone)
        assert np.array_equal(alone[0, :length], out[r, :length])


@njit
def score(queries, keys, start, head, length, out):
    score_keys(as_multiplied(queries, keys), keys, keys, start, head, length, out)


@pytest.mark.full
def test_processors_without_wide_registers_get_the_same():
    """The same code for the registers that every x86-64, or every processor, has."""
    program = (
        "import numpy as np, torch; from specdec_kernels.cpu.loops.lanes import LANES;"
        "from specdec_kernels.cpu.loops.attention import compiled_attention;"
        "from specdec_kernels.cpu.loops.segments import segment_arrays;"
        "from specdec_kernels.cpu.loops.product import compact, multiply;"
        "from specdec_runtime.interfaces import PackedBatch, Segment;"
        "assert LANES == 4; torch.manual_seed(0); x, w = torch.randn(7, 37), torch.randn(11, 37).bfloat16();"
        "out = np.full((7, 11), np.nan, np.float32); multiply(x.numpy(), compact(w), out, False);"
        "assert np.abs(out - (x @ w.float().T).numpy()).max() < 1e-5;"
        "q, k, v = torch.randn(3, 4, 20), torch.randn(9, 2, 20), torch.randn(9, 2, 20);"
        "batch = PackedBatch(torch.zeros(3), torch.arange(6, 9), [Segment(0, 3, 0, 6)], None, None);"
        "got = compiled_attention(q, (k.numpy(), v.numpy()), *segment_arrays(batch), None, 0.2);"
        "mask = torch.ones(3, 9, dtype=torch.bool).tril(6);"
        "want = torch.nn.functional.scaled_dot_product_attention(q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1),"
        " mask, scale=0.2, enable_gqa=True).transpose(0, 1); assert (got - want).abs().max() < 1e-5"
    )
    environment = os.environ | {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_compact_is_exact_or_keeps_float32():
    weight = torch.randn(5, 8).bfloat16().float()
    bits = compact(weight)
    assert bits.dtype == np.uint16
    assert torch.equal(torch.from_numpy(bits.view(np.int16).copy()).view(torch.bfloat16).float(), weight)
    weight[3, 2] += 2.0**-20
    assert compact(weight).dtype == np.float32


@pytest.mark.parametrize("num_rows", [1, 4, 33, MAX_PRODUCT_ROWS + 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_joined_linears_with_biases_equal_the_modules(num_rows, dtype):
    torch.manual_seed(3)
    linears = [nn.Linear(24, width, dtype=dtype) for width in (5, 8, 3)]
    x = torch.randn(num_rows, 24, dtype=dtype)
    expected = torch.cat([linear(x) for linear in linears], -1)
    for kind in (JoinedLinear, CompiledLinear):
        fast = kind(linears)
        tolerance = 1e-5 if dtype == torch.float32 else 2e-2
        torch.testing.assert_close(fast(x), expected, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(torch.cat([linear(x) for linear in linears], -1), expected)


@njit
def _exp_all(x, out):
    for i in range(x.shape[0]):
        out[i] = fast_exp(x[i])


@njit
def _round_trip(x, stored, back):
    for i in range(x.shape[0]):
        stored[i] = narrow(x[i], stored[i])
        back[i] = widen(stored[i])


def test_fast_exp_is_within_two_parts_in_ten_million():
    x = np.concatenate((np.linspace(-86, 87, 100_001), [0.0, -0.0, 1e-30])).astype(np.float32)
    out = np.empty_like(x)
    _exp_all(x, out)
    exact = np.exp(x.astype(np.float64))
    assert np.max(np.abs(out - exact) / exact) < 2e-7


def test_narrowing_rounds_as_torch_does():
    x = torch.cat((torch.randn(10_000) * 100, torch.tensor([0.0, -0.0, 1.00390625, 1.01171875, 3e38, 1e-39])))
    stored, back = np.empty(len(x), np.uint16), np.empty(len(x), np.float32)
    _round_trip(x.numpy(), stored, back)
    assert torch.equal(torch.from_numpy(back), x.bfloat16().float())


@pytest.mark.parametrize("is_centred", [False, True])
@pytest.mark.parametrize(("num_rows", "size"), [(1, 1), (1, 64), (3, 33), (7, 256)])
def test_norms_equal_torch(num_rows, size, is_centred):
    def in_torch(x):
        return (F.layer_norm if is_centred else F.rms_norm)(x, (size,), weight, eps=1e-5)

    torch.manual_seed(size)
    x, delta, weight = torch.randn(num_rows, size), torch.randn(num_rows, size), torch.randn(size)
    out = np.full((num_rows, size), np.nan, np.float32)
    norm(x.numpy(), weight.numpy(), 1e-5, is_centred, out)
    torch.testing.assert_close(torch.from_numpy(out), in_torch(x), rtol=2e-6, atol=2e-6)
    residual = x.clone()
    add_norm(residual.numpy(), delta.numpy(), weight.numpy(), 1e-5, is_centred, out)
    torch.testing.assert_close(residual, x + delta)
    torch.testing.assert_close(torch.from_numpy(out), in_torch(x + delta), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("is_gelu", [False, True])
def test_activations_equal_torch_also_far_out(is_gelu):
    gate_up = torch.cat((torch.randn(3, 40) * 30, torch.randn(3, 40)), -1)
    gate_up[0, 0], gate_up[1, 1], gate_up[2, 2] = -200.0, 200.0, 0.01
    out = np.full((3, 40), np.nan, np.float32)
    activate(gate_up.numpy(), is_gelu, out)
    gate = gate_up[:, :40].double()
    activated = F.gelu(gate, approximate="tanh") if is_gelu else F.silu(gate)
    torch.testing.assert_close(
        torch.from_numpy(out), (activated * gate_up[:, 40:]).float(), rtol=1e-6, atol=1e-6
    )


def test_logits_are_scaled_then_capped():
    logits = torch.randn(3, 40) * 100
    logits[0, 0], logits[1, 1] = 0.0, 1e6
    out = logits.numpy().copy()
    finish_logits(out, 0.5, 30.0)
    expected = 30.0 * torch.tanh(0.5 * logits.double() / 30.0)
    torch.testing.assert_close(torch.from_numpy(out), expected.float(), rtol=1e-6, atol=1e-5)


def test_norms_of_all_heads_at_once_leave_values_alone():
    heads, weights = torch.randn(3, 50), torch.randn(36)
    out = heads.numpy().copy()
    norm_heads(out, 24, weights.numpy(), 1e-6)
    expected = heads.clone()
    expected[:, :24] = F.rms_norm(heads[:, :24], (24,), weights[:24], 1e-6)
    expected[:, 24:36] = F.rms_norm(heads[:, 24:36], (12,), weights[24:], 1e-6)
    torch.testing.assert_close(torch.from_numpy(out), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("softcap", [0.5, 50.0])
def test_scores_are_capped_like_torch(softcap):
    scores = torch.randn(96) * 40
    scores[3], scores[4], scores[5] = 0.0, 1e9, -1e9
    out = scores.numpy().copy()
    from_python(cap_scores)(out, np.float32(softcap))
    expected = softcap * torch.tanh(scores.double() / softcap)
    torch.testing.assert_close(torch.from_numpy(out), expected.float(), rtol=1e-6, atol=2e-7 * softcap)


@pytest.mark.parametrize("is_half", [False, True])
@pytest.mark.parametrize(
    ("num_norms", "width", "is_interleaved", "are_keys_values"),
    [
        (0, 8, False, False),
        (2, 8, False, False),
        (0, 4, True, False),
        (3, 8, False, True),
        (2, 0, False, False),
    ],
)
def test_rotation_stores_keys_and_values_at_their_slots_only(
    num_norms, width, is_interleaved, are_keys_values, is_half
):
    torch.manual_seed(5)
    heads = torch.randn(3, 4 + 2 * (1 if are_keys_values else 2), 8)
    angles = torch.rand(16, width // 2) * 6
    if is_interleaved:
        cos = angles.cos().repeat_interleave(2, -1)
        sin = torch.stack((-angles.sin(), angles.sin()), -1).flatten(-2)
    else:
        cos = torch.cat((angles.cos(), angles.cos()), -1)
        sin = torch.cat((-angles.sin(), angles.sin()), -1)
    positions, slots = torch.tensor([5, 6, 2]), torch.tensor([9, 1, 4])
    norms = torch.randn(num_norms, 8)
    kind = np.uint16 if is_half else np.float32
    keys, values = np.full((10, 2, 8), 7, kind), np.full((10, 2, 8), 7, kind)
    query = np.full((3, 4, 8), np.nan, np.float32)
    rotate_and_store(
        heads.clone().numpy(), cos.numpy(), sin.numpy(), is_interleaved, positions.numpy(), slots.numpy(), norms.numpy(),
        1e-6, keys, values, query,
    )  # fmt: skip

    x, value = heads[:, :6].clone(), heads[:, -2:].clone()
    if num_norms:
        x[:, :4] = F.rms_norm(x[:, :4], (8,), norms[0], 1e-6)
        x[:, 4:] = F.rms_norm(x[:, 4:], (8,), norms[1], 1e-6)
    if num_norms > 2:
        value = F.rms_norm(value, (8,), norms[2], 1e-6)
    turned = x[..., :width]
    if is_interleaved:
        partner = turned.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    else:
        partner = turned.roll(width // 2, -1)
    rotated = x.clone()
    rotated[..., :width] = turned * cos[positions, None] + partner * sin[positions, None]
    torch.testing.assert_close(torch.from_numpy(query), rotated[:, :4], rtol=1e-5, atol=1e-5)
    for stored, expected in ((keys, rotated[:, 4:]), (values, value)):
        written = stored[slots.numpy()]
        if is_half:
            written = torch.from_numpy(written.view(np.int16)).view(torch.bfloat16).float().numpy()
        tolerance = 1e-2 if is_half else 1e-5
        torch.testing.assert_close(torch.from_numpy(written), expected, rtol=tolerance, atol=tolerance)
        untouched = [slot for slot in range(10) if slot not in slots.tolist()]
        assert (stored[untouched] == 7).all()
