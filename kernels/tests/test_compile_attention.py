"""The kernels of a pass over the target compile for a GPU, on a machine without one, and fit its shared memory."""

from typing import Any

import pytest
from kernelcompile import COMPILES, MOST_MEMORY, compiled, triton

pytestmark = COMPILES

TYPES = ["*bf16", "*fp16", "*fp32"]


def check(
    kernel: Any, types: dict[str, str], constants: dict[str, Any], num_warps: int, **options: Any
) -> Any:
    return compiled(
        kernel, types, constants, others="i32", memory=MOST_MEMORY, num_warps=num_warps, **options
    )


@pytest.mark.parametrize("dtype", TYPES)
def test_kv_write(dtype: str) -> None:
    from specdec_kernels.triton.kv_write.kernel import heuristic, kv_write_kernel

    config = heuristic(8, 192)
    pointers = dict.fromkeys(("key_ptr", "value_ptr", "key_pages_ptr", "value_pages_ptr"), dtype)
    constants = {
        "NUM_HEADS": 8,
        "KEY_DIM": 192,
        "VALUE_DIM": 128,
        "PAGE_SIZE": 16,
        "BLOCK_HEADS": config.block,
        "BLOCK_KEY": 256,
        "BLOCK_VALUE": 128,
    }
    check(kv_write_kernel, pointers | {"slot_mapping_ptr": "*i64"}, constants, config.num_warps)


@pytest.mark.parametrize(
    ("dtype", "key_dim", "value_dim", "is_decode"),
    [
        ("*bf16", 64, 64, True),
        ("*bf16", 80, 80, False),
        ("*bf16", 128, 128, True),
        ("*bf16", 128, 128, False),
        ("*bf16", 192, 128, False),
        ("*bf16", 256, 256, True),
        ("*fp16", 64, 64, False),
        ("*fp32", 64, 64, True),
    ],
)
@pytest.mark.sampled(2, slow=4)
def test_paged_attention(dtype: str, key_dim: int, value_dim: int, is_decode: bool) -> None:
    from specdec_kernels.triton.paged_attention.config import Problem, heuristic, invariant
    from specdec_kernels.triton.paged_attention.kernel import paged_attention_kernel

    itemsize = 4 if dtype == "*fp32" else 2
    problem = Problem(40, 8, 4, 8, key_dim, value_dim, itemsize, max_context_len=32768)
    config = heuristic(problem) if is_decode else invariant(problem)
    names = ("query_ptr", "key_pages_ptr", "value_pages_ptr", "out_ptr")
    pointers = dict.fromkeys(names, dtype) | dict.fromkeys(
        ("block_tables_ptr", "query_starts_ptr", "context_lens_ptr"), "*i32"
    )
    pointers |= {"sums_ptr": "*fp32", "maxima_ptr": "*fp32", "masses_ptr": "*fp32"}
    constants = {
        "GROUP": 4,
        "KEY_DIM": key_dim,
        "VALUE_DIM": value_dim,
        "PAGE_SIZE": 16,
        "SCALE": key_dim**-0.5,
        "SOFTCAP": 0.0,
        "WINDOW": 0,
        "TREE_WORDS": 0,
        "IS_CAUSAL": True,
        "IS_SHARED": config.shares(32768) > 1,
        "SPLIT_SIZE": config.split_size or 0,
        "BLOCK_REQUESTS": 16,
        "BLOCK_ROWS": config.block_rows,
        "BLOCK_TOKENS": config.block_tokens,
        "BLOCK_KEY": triton.next_power_of_2(key_dim),
        "BLOCK_VALUE": triton.next_power_of_2(value_dim),
    }
    absent = dict.fromkeys(("sinks_ptr", "tree_mask_ptr", "positions_ptr"))
    plain = constants | absent
    check(paged_attention_kernel, pointers, plain, config.num_warps, num_stages=config.num_stages)
    if key_dim != 128 or is_decode:
        return
    block = plain | {"IS_CAUSAL": False}
    check(paged_attention_kernel, pointers, block, config.num_warps, num_stages=config.num_stages)
    everything = constants | {
        "SOFTCAP": 30.0,
        "WINDOW": 4096,
        "TREE_WORDS": 1,
        "IS_SHARED": False,
        "SPLIT_SIZE": 0,
    }
    everything |= {"sums_ptr": None, "maxima_ptr": None, "masses_ptr": None}
    pointers = {n: t for n, t in pointers.items() if n not in everything}
    pointers |= {"sinks_ptr": dtype, "tree_mask_ptr": "*i64", "positions_ptr": "*i64"}
    check(paged_attention_kernel, pointers, everything, config.num_warps, num_stages=config.num_stages)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("has_sinks", [False, True])
@pytest.mark.sampled(2, slow=2)
def test_combine(dtype: str, has_sinks: bool) -> None:
    from specdec_kernels.triton.paged_attention.kernel import combine_kernel

    pointers = {"sums_ptr": "*fp32", "maxima_ptr": "*fp32", "masses_ptr": "*fp32", "query_starts_ptr": "*i64"}
    pointers |= {"out_ptr": dtype} | ({"sinks_ptr": dtype} if has_sinks else {})
    constants = {"NUM_HEADS": 28, "VALUE_DIM": 80, "BLOCK_HEADS": 8, "BLOCK_VALUE": 128}
    check(combine_kernel, pointers, constants | ({} if has_sinks else {"sinks_ptr": None}), num_warps=4)


def test_block_tables() -> None:
    from specdec_kernels.triton.block_tables.kernel import block_tables_kernel
    from specdec_kernels.triton.launch import row_blocks

    config = row_blocks(128)
    pointers = dict.fromkeys(("first_blocks_ptr", "num_shared_ptr", "shared_blocks_ptr", "out_ptr"), "*i64")
    check(block_tables_kernel, pointers, {"BLOCK": config.block}, config.num_warps)


@pytest.mark.parametrize("dtype", TYPES)
def test_kv_compact(dtype: str) -> None:
    from specdec_kernels.triton.kv_compact.config import heuristic
    from specdec_kernels.triton.kv_compact.kernel import kv_compact_kernel

    config = heuristic(9)
    pointers = {"first_slots_ptr": "*i64", "paths_ptr": "*i64"}
    pointers |= {"key_pages_ptr": dtype, "value_pages_ptr": dtype}
    constants = {
        "NUM_HEADS": 8,
        "KEY_DIM": 192,
        "VALUE_DIM": 128,
        "PAGE_SIZE": 16,
        "BLOCK_PATH": 16,
        "BLOCK_NUMBERS": config.block,
    }
    ptx = check(kv_compact_kernel, pointers, constants, config.num_warps).asm["ptx"]
    barrier = ptx.index("bar.sync")  # all is read before it, all is written after it
    assert ptx.rindex("ld.global") < barrier < ptx.index("st.global")


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", [80, 4096, 16384])
@pytest.mark.parametrize("has_residual", [False, True])
@pytest.mark.sampled(4, slow=6)
def test_rms_norm(dtype: str, size: int, has_residual: bool) -> None:
    from specdec_kernels.triton.rms_norm.kernel import heuristic, rms_norm_kernel

    pointers = dict.fromkeys(("x_ptr", "weight_ptr", "normed_ptr"), dtype)
    block = triton.next_power_of_2(size)
    constants = {"EPSILON": 1e-6, "SIZE": size, "BLOCK": block}
    optional = ("residual_ptr", "total_ptr")
    if has_residual:
        pointers |= dict.fromkeys(optional, dtype)
    else:
        constants |= dict.fromkeys(optional)
    check(rms_norm_kernel, pointers, constants, heuristic(size))


@pytest.mark.parametrize("dtype", TYPES)
def test_silu_mul(dtype: str) -> None:
    from specdec_kernels.triton.launch import row_blocks
    from specdec_kernels.triton.silu_mul.kernel import silu_mul_kernel

    config = row_blocks(14336)
    pointers = dict.fromkeys(("gate_ptr", "up_ptr", "out_ptr"), dtype)
    constants = {"SIZE": 14336, "BLOCK": config.block}
    check(silu_mul_kernel, pointers, constants, config.num_warps)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("has_norms", [False, True])
@pytest.mark.parametrize("half", [64, 16])
@pytest.mark.sampled(3, slow=3)
def test_rope_kv_write(dtype: str, half: int, has_norms: bool) -> None:
    from specdec_kernels.triton.rope_kv_write.kernel import heuristic, rope_kv_write_kernel

    names = ("query_ptr", "key_ptr", "value_ptr", "key_pages_ptr", "value_pages_ptr", "out_ptr")
    pointers = dict.fromkeys(names, dtype) | dict.fromkeys(("cos_ptr", "sin_ptr"), "*fp32")
    pointers |= {"slot_mapping_ptr": "*i64", "positions_ptr": "*i64"}
    weights = ("query_weight_ptr", "key_weight_ptr")
    pointers |= dict.fromkeys(weights, dtype) if has_norms else {}
    constants = {
        "EPSILON": 1e-6,
        "GROUP": 7,
        "HALF": half,
        "KEY_DIM": 128,
        "VALUE_DIM": 128,
        "PAGE_SIZE": 16,
        "BLOCK_GROUP": 8,
        "BLOCK_HALF": half,
        "BLOCK_REST": triton.next_power_of_2(max(1, 128 - 2 * half)),
        "BLOCK_VALUE": 128,
    }
    constants |= {} if has_norms else dict.fromkeys(weights)
    check(rope_kv_write_kernel, pointers, constants, heuristic(7, 128))


@pytest.mark.parametrize("dtype", ["*bf16", "*fp16"])
@pytest.mark.parametrize("num_columns", [1024, 151936])
@pytest.mark.sampled(1, slow=2)
def test_matmul_invariant(dtype: str, num_columns: int) -> None:
    from specdec_kernels.triton.matmul_invariant.config import heuristic
    from specdec_kernels.triton.matmul_invariant.kernel import matmul_invariant_kernel

    config = heuristic(num_columns, 2)
    pointers = dict.fromkeys(("x_ptr", "weight_ptr", "bias_ptr", "out_ptr"), dtype)
    constants = {
        "NUM_COLUMNS": num_columns,
        "DEPTH": 4096,
        "BLOCK_ROWS": config.block_rows,
        "BLOCK_COLUMNS": config.block_columns,
        "BLOCK_DEPTH": config.block_depth,
    }
    check(matmul_invariant_kernel, pointers, constants, config.num_warps, num_stages=config.num_stages)


def test_matmul_invariant_of_full_precision() -> None:
    from specdec_kernels.triton.matmul_invariant.config import heuristic
    from specdec_kernels.triton.matmul_invariant.kernel import matmul_invariant_kernel

    config = heuristic(1024, 4)
    pointers = dict.fromkeys(("x_ptr", "weight_ptr", "out_ptr"), "*fp32")
    constants = {"NUM_COLUMNS": 1024, "DEPTH": 4096, "bias_ptr": None, "BLOCK_ROWS": config.block_rows}
    constants |= {"BLOCK_COLUMNS": config.block_columns, "BLOCK_DEPTH": config.block_depth}
    check(matmul_invariant_kernel, pointers, constants, config.num_warps, num_stages=config.num_stages)
