"""`rope_kv_write` against plain torch: the reference everywhere, the kernel under the interpreter and on a GPU."""

from typing import Any

import pytest
import torch
from kernelcheck import NAN, check_close

from specdec_kernels.triton import Backend, use_backend
from specdec_kernels.triton.rope_kv_write import HeadNorms, rope_kv_write

EPSILON = 1e-2


def rotated(x, cos, sin, dtype) -> torch.Tensor:
    """One pair at a time, every operation in `dtype`."""
    half = cos.shape[1]
    out = x.to(dtype).clone()
    for i in range(half):
        a, b = x[..., i].to(dtype), x[..., i + half].to(dtype)
        c, s = cos[:, i, None].to(dtype), sin[:, i, None].to(dtype)
        out[..., i], out[..., i + half] = a * c - b * s, b * c + a * s
    return out


def normed(x, weight, dtype) -> torch.Tensor:
    """The norm of each head, every operation in `dtype`."""
    if weight is None:
        return x
    wide = x.to(dtype)
    return wide * (wide.square().mean(-1, keepdim=True) + EPSILON).rsqrt() * weight.to(dtype)


def norms_for(given: dict[str, torch.Tensor]) -> HeadNorms:
    return HeadNorms(*torch.rand(2, given["query"].shape[2]).to(given["query"].dtype) + 0.5, EPSILON)


def make(num_rows=5, heads=(4, 2), dims=(16, 16), half=8, dtype=torch.float32) -> dict[str, torch.Tensor]:
    """Arguments; pages are NaN."""
    torch.manual_seed(num_rows + half)
    pages = (5, 7, heads[1])
    angles = torch.rand(30, half) * 6.3
    slots = torch.randperm(35)[:num_rows]
    slots[1::4] = -1
    return {
        "query": torch.randn(num_rows, heads[0], dims[0]).to(dtype),
        "key": torch.randn(num_rows, heads[1], dims[0]).to(dtype),
        "value": torch.randn(num_rows, heads[1], dims[1]).to(dtype),
        "cos": angles.cos().to(dtype),
        "sin": angles.sin().to(dtype),
        "key_pages": torch.full((*pages, dims[0]), NAN, dtype=dtype),
        "value_pages": torch.full((*pages, dims[1]), NAN, dtype=dtype),
        "slot_mapping": slots,
        "positions": torch.randint(30, (num_rows,)),
    }


def check(
    given: dict[str, torch.Tensor],
    device,
    norms: HeadNorms | None = None,
    **options: Any,
) -> None:
    """Run into a poisoned output and compare queries and pages."""
    weights = (None, None) if norms is None else norms[:2]
    if norms is not None:
        norms = HeadNorms(*(weight.to(device) for weight in weights), norms.epsilon)
    moved = {name: tensor.clone().to(device) for name, tensor in given.items()}
    out = torch.full_like(moved["query"], NAN)
    assert rope_kv_write(**moved, norms=norms, out=out, **options) is out
    rows = given["positions"]
    angles = given["cos"][rows], given["sin"][rows]
    dtype = given["query"].dtype
    exact, theirs = (
        rotated(normed(given["query"], weights[0], kind), *angles, kind) for kind in (torch.float64, dtype)
    )
    check_close(out, theirs, exact)
    is_row = given["slot_mapping"] >= 0
    slots = given["slot_mapping"][is_row]
    place = slots // 7, slots % 7
    keys, values = moved["key_pages"].cpu(), moved["value_pages"].cpu()
    exact, theirs = (
        rotated(normed(given["key"], weights[1], kind), *angles, kind)[is_row]
        for kind in (torch.float64, dtype)
    )
    check_close(keys[place], theirs, exact)
    assert torch.equal(values[place], given["value"][is_row])
    for pages in (keys, values):
        pages[place] = NAN
        assert pages.isnan().all()  # nothing else is written
    rest = 2 * given["cos"].shape[1] if norms is None else given["query"].shape[2]
    assert torch.equal(out[..., rest:].cpu(), given["query"][..., rest:])


@pytest.mark.parametrize(
    ("heads", "dims", "half"),
    [((4, 2), (16, 16), 8), ((3, 1), (80, 80), 40), ((2, 2), (96, 64), 12), ((7, 1), (192, 128), 32), ((20, 4), (2, 1), 1)],
    ids=str,
)  # fmt: skip
@pytest.mark.sampled(5, slow=0)
def test_odd_sizes_and_partial_rotation(heads, dims, half, device: torch.device) -> None:
    check(make(6, heads, dims, half), device)
    check(make(1, heads, dims, half), device)


@pytest.mark.parametrize("dims", [(16, 16), (24, 16)], ids=str)
def test_heads_are_normed_before_they_are_rotated(dims, device: torch.device) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        given = make(6, (6, 2), dims, dtype=dtype)
        check(given, device, norms=norms_for(given))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision(dtype: torch.dtype, device: torch.device) -> None:
    check(make(dims=(24, 16), dtype=dtype), device)


def test_other_types(device: torch.device) -> None:
    given = make(dtype=torch.bfloat16) | {n: make()[n] for n in ("cos", "sin")}
    given["positions"] = given["positions"].int()
    check(given, device)


def test_parts_of_a_projection_and_queries_in_place(device: torch.device) -> None:
    given = {name: tensor.to(device) for name, tensor in make(dims=(24, 24)).items()}
    projected = torch.cat([given[name].flatten(1) for name in ("query", "key", "value")], 1)
    query, key, value = (part.unflatten(1, (-1, 24)) for part in projected.split([96, 48, 48], 1))
    expected = rope_kv_write(**given)
    cache = torch.stack((given["key_pages"], given["value_pages"]), 1)
    written = cache.clone()
    cache.fill_(NAN)
    kept = projected[:, 96:].clone()
    views = {"query": query, "key": key, "value": value, "out": query}
    pages = {"key_pages": cache[:, 0], "value_pages": cache[:, 1]}
    assert rope_kv_write(**(given | views | pages)) is query
    assert torch.equal(query, expected)
    assert torch.equal(projected[:, 96:], kept)
    assert torch.equal(cache.nan_to_num(), written.nan_to_num())


@pytest.mark.parametrize(
    "kind",
    [pytest.param("cpu", marks=pytest.mark.interpreter), pytest.param("cuda", marks=pytest.mark.gpu)],
)
def test_a_row_does_not_depend_on_the_batch(kind: str) -> None:
    given = {name: tensor.to(kind) for name, tensor in make(17).items()}
    per_row = ("query", "key", "value", "slot_mapping", "positions")
    with use_backend(Backend.TRITON):
        batch = rope_kv_write(**given)
        for piece in (slice(0, 1), slice(16, 17), slice(3, 8)):
            own = {name: given[name][piece] for name in per_row}
            pages = {name: torch.full_like(given[name], NAN) for name in ("key_pages", "value_pages")}
            assert torch.equal(rope_kv_write(**(given | own | pages)), batch[piece])
            for name, tensor in pages.items():
                is_written = ~tensor.isnan()
                assert torch.equal(tensor[is_written], given[name][is_written])


@pytest.mark.parametrize("num_warps", [1, 4])
def test_every_configuration(num_warps: int, device: torch.device) -> None:
    check(make(), device, num_warps=num_warps)


def test_no_rows(device: torch.device) -> None:
    given = {name: tensor.to(device) for name, tensor in make(0).items()}
    assert rope_kv_write(**given).shape == (0, 4, 16)


G = make()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"query": G["query"][0]}, r"query must be float32, float16 or bfloat16 \[T, H, D\]"),
        ({"query": G["query"].double()}, "not float64"),
        ({"query": G["query"][:, :3]}, "query has H=3 heads, which is not a multiple of the Hkv=2 of key"),
        ({"key": G["key"][:4]}, r"key must be float32 \[5, Hkv, 16\]"),
        ({"value": G["value"][:, :1]}, r"value must be float32 \[5, 2, Dv\]"),
        ({"cos": G["cos"][0]}, r"cos must be float32 \[P, R / 2\]"),
        ({"sin": G["sin"][:, :4]}, r"sin must be float32 \[30, 8\]"),
        ({"sin": G["sin"].half()}, "sin must be float32"),
        ({"cos": torch.zeros(30, 16)[:, :8]}, "cos must be contiguous"),
        ({"cos": torch.zeros(30, 9), "sin": torch.zeros(30, 9)}, "cos rotates R=18 numbers of a head that has D=16"),
        ({"key_pages": G["key_pages"][..., :8]}, "key_pages must be float32"),
        ({"value_pages": G["value_pages"].half()}, "value_pages must be float32"),
        ({"slot_mapping": torch.zeros(4, dtype=torch.int64)}, r"slot_mapping must be contiguous int64 \[5\]"),
        ({"positions": torch.zeros(5)}, r"positions must be contiguous int32 or int64 \[5\]"),
        ({"out": G["query"][:, :3]}, r"out must be float32 \[5, 4, 16\]"),
        ({"norms": HeadNorms(torch.ones(16), torch.ones(8), 0.0)}, r"norms.key must be contiguous floating point \[16\]"),
        ({"norms": HeadNorms(torch.ones(16), torch.ones(16), -1.0)}, "norms.epsilon=-1.0 must be at least 0"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rope_kv_write(**(G | changes))


MUTANTS = {
    "turns the other way": ("a * cos - b * sin", "a * cos + b * sin"),
    "takes other pairs": ("first, second = pairs, pairs + HALF", "first, second = pairs, pairs + 1"),
    "takes rows for positions": ("position = tl.load(positions_ptr + row).to(tl.int64)", "position = row"),
    "forgets the rest of a head": ("tl.store(target + dims, rest.to(dtype), mask=in_rest)", "pass"),
    "writes padding": ("    if slot < 0:", "    slot = tl.maximum(slot, 0)\n    if slot < 0:"),
    "mixes up heads": ("heads = kv_head * GROUP + members", "heads = kv_head + members"),
    "forgets the page": ("place = page * value_page_stride +", "place ="),
    "norms over a part": ("total += tl.sum(rest * rest, 1)", "total += 0.0"),
    "takes the other weight": ("cos, sin, key_weight_ptr, EPSILON", "cos, sin, query_weight_ptr, EPSILON"),
    "mixes up weights of a pair": (
        "b = _scaled(b, scale, weight_ptr, second,",
        "b = _scaled(b, scale, weight_ptr, first,",
    ),
}


def check_all() -> None:
    given = make(dims=(18, 16), half=8)
    check(given, torch.device("cpu"))
    check(given, torch.device("cpu"), norms=norms_for(given))


@pytest.mark.interpreter
@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_kernel_fails(name: str, check_mutant) -> None:
    check_mutant("rope_kv_write", None, check_all)
    check_mutant("rope_kv_write", MUTANTS[name], check_all)
