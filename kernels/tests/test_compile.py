"""Every kernel compiles for a GPU, on a machine without one: to machine code, with the shared memory it takes known."""

import os
from pathlib import Path
from typing import Any

import pytest

triton = pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter compiles nothing"
)

SHARED_MEMORY_LIMIT = 48 * 1024
IDS = {"row_starts_ptr": "*i64", "num_nodes_ptr": "*i64", "num_accepted_ptr": "*i64", "token_ids_ptr": "*i64"}
TILE = {"best_id_ptr": "*i32", "row_stride": "i32", "vocab_size": "i32"}
CHAIN = {"best_id_ptr": "*i32", "draft_stride": "i32", "token_ids_stride": "i32", **IDS}


def compiled(kernel: Any, types: dict[str, str], constants: dict[str, int], num_warps: int) -> Any:
    """Compile for an NVIDIA GPU of compute capability 9.0; arguments that are not in `types` are constants."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = kernel.arg_names
    assert set(names) == set(types) | set(constants)
    source = ASTSource(
        fn=kernel,
        signature={name: types.get(name, "constexpr") for name in names},
        constexprs={(names.index(name),): value for name, value in constants.items()},
    )
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": num_warps})


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


@pytest.mark.parametrize(
    ("logits", "exact"), [("*bf16", "*fp32"), ("*fp16", "*fp32"), ("*fp32", "*fp32"), ("*fp64", "*fp64")]
)
def test_tile_best(logits: str, exact: str) -> None:
    from specdec_kernels.greedy_verify.config import heuristic
    from specdec_kernels.greedy_verify.kernel import tile_best_kernel

    config = heuristic(151936)
    constants = {"NUM_TILES": config.num_tiles(151936), "BLOCK_V": config.block_v}
    types = TILE | {"logits_ptr": logits, "best_value_ptr": exact}
    binary = compiled(tile_best_kernel, types, constants, config.num_warps)
    assert binary.asm["cubin"]
    assert binary.metadata.shared <= SHARED_MEMORY_LIMIT


@pytest.mark.parametrize("width", [0, 1, 7])
@pytest.mark.parametrize("draft", ["*i32", "*i64"])
def test_verify_chain(width: int, draft: str) -> None:
    from specdec_kernels.greedy_verify.kernel import verify_chain_kernel

    constants = {"WIDTH": width, "NUM_TILES": 19, "BLOCK_TILES": 32}
    types = CHAIN | {"best_value_ptr": "*fp32", "draft_ptr": draft}
    binary = compiled(verify_chain_kernel, types, constants, num_warps=1)
    assert binary.asm["cubin"]
    assert binary.metadata.shared <= SHARED_MEMORY_LIMIT
