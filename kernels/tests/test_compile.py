"""The kernels of greedy verification compile for a GPU, on a machine without one, and fit its shared memory."""

import pytest
from kernelcompile import COMPILES, compiled

pytestmark = COMPILES

IDS = {"row_starts_ptr": "*i64", "num_nodes_ptr": "*i64", "num_accepted_ptr": "*i64", "token_ids_ptr": "*i64"}
TILE = {"best_id_ptr": "*i32", "row_stride": "i32", "vocab_size": "i32"}
CHAIN = {"best_id_ptr": "*i32", "draft_stride": "i32", "token_ids_stride": "i32", **IDS}


@pytest.mark.parametrize(
    ("logits", "exact"), [("*bf16", "*fp32"), ("*fp16", "*fp32"), ("*fp32", "*fp32"), ("*fp64", "*fp64")]
)
def test_tile_best(logits: str, exact: str) -> None:
    from specdec_kernels.greedy_verify.config import heuristic
    from specdec_kernels.greedy_verify.kernel import tile_best_kernel

    config = heuristic(151936)
    constants = {"NUM_TILES": config.num_tiles(151936), "BLOCK_V": config.block_v}
    types = TILE | {"logits_ptr": logits, "best_value_ptr": exact}
    compiled(tile_best_kernel, types, constants, num_warps=config.num_warps)


@pytest.mark.parametrize("width", [0, 1, 7])
@pytest.mark.parametrize("draft", ["*i32", "*i64"])
def test_verify_chain(width: int, draft: str) -> None:
    from specdec_kernels.greedy_verify.kernel import verify_chain_kernel

    constants = {"WIDTH": width, "NUM_TILES": 19, "BLOCK_TILES": 32}
    types = CHAIN | {"best_value_ptr": "*fp32", "draft_ptr": draft}
    compiled(verify_chain_kernel, types, constants, num_warps=1)
