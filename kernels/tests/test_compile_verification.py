"""What verification launches compiles for a GPU, on a machine without one: argument by argument as the launchers pass it."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from kernelcompile import COMPILES, Compiler

pytestmark = COMPILES

VOCAB_SIZE = 151936


@pytest.fixture
def compile_launches(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Make the launchers of modules compile; the binaries appear in what is returned, by name of the kernel."""

    def replace(*modules: ModuleType) -> dict[str, Any]:
        compiled: dict[str, Any] = {}
        for module in modules:
            for name, value in list(vars(module).items()):
                if name.endswith("_kernel"):
                    monkeypatch.setattr(module, name, Compiler(value, compiled))
        return compiled

    return replace


def longs(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int64)


@pytest.mark.parametrize("is_gumbel", [False, True])
def test_noise(is_gumbel: bool, compile_launches) -> None:
    from specdec_kernels.triton.noise import NoiseKeys, kernel

    compiled = compile_launches(kernel)
    out = torch.empty(2, VOCAB_SIZE, dtype=torch.float32 if is_gumbel else torch.float64)
    keys = NoiseKeys(longs(2), longs(2), longs(2))
    kernel.noise_triton(keys, longs(2), out, None, is_gumbel=is_gumbel)
    assert set(compiled) == {"noise_kernel"}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.sampled(1, slow=2)
def test_gumbel_sample(dtype: torch.dtype, compile_launches) -> None:
    from specdec_kernels.triton.gumbel_sample import kernel
    from specdec_kernels.triton.noise import NoiseKeys

    compiled = compile_launches(kernel)
    keys = NoiseKeys(longs(2), longs(2), longs(2))
    logits = torch.empty(2, VOCAB_SIZE, dtype=dtype)
    words = longs(2) if dtype is torch.float32 else None
    kernel.gumbel_sample_triton(logits, torch.ones(2), keys, words, longs(2), None)
    assert set(compiled) == {"sample_tile_kernel", "row_winner_kernel"}


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize(("width", "is_tree"), [(0, False), (1, True), (7, False), (7, True)])
@pytest.mark.sampled(2, slow=4)
def test_strict_verify(width: int, is_tree: bool, is_cut: bool, compile_launches) -> None:
    from specdec_kernels.triton.noise import NoiseKeys
    from specdec_kernels.triton.strict_verify import RequestCuts, kernel

    compiled = compile_launches(kernel)
    kernel.strict_verify_triton(
        torch.empty(3, VOCAB_SIZE, dtype=torch.float32 if is_cut else torch.bfloat16),
        longs(2, width).int(),
        longs(2).int(),
        longs(2),
        torch.ones(2),
        NoiseKeys(longs(2), longs(2), longs(2)),
        longs(2, width) if is_tree else None,
        RequestCuts(longs(2), torch.ones(2)) if is_cut else None,
        longs(2),
        longs(2, width + 1),
        longs(2, width),
        longs(2),
        None,
    )
    assert set(compiled) == {"draw_and_walk_kernel"}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.sampled(1, slow=2)
def test_process_logits(dtype: torch.dtype, compile_launches) -> None:
    from specdec_kernels.triton.process_logits import Cuts, kernel

    compiled = compile_launches(kernel)
    logits, ones = torch.zeros(2, VOCAB_SIZE, dtype=dtype), torch.ones(2)
    cuts = Cuts(ones, ones, longs(2), ones) if dtype is not torch.float64 else Cuts(ones, None, None, ones)
    out = torch.empty(2, VOCAB_SIZE)
    for each in (cuts, cuts._replace(top_k=None, top_p=None)):
        kernel.process_logits_triton(logits, each, out, None)
    assert set(compiled) == {"widen_kernel", "temperature_kernel", "cut_kernel"}


@pytest.mark.parametrize(("dtype", "is_tree"), [(torch.bfloat16, False), (torch.float32, True)], ids=str)
def test_list_logprobs(dtype: torch.dtype, is_tree: bool, compile_launches) -> None:
    from specdec_kernels.triton.list_logprobs import kernel

    compiled = compile_launches(kernel)
    nodes, out = longs(2, 3) if is_tree else None, torch.empty(2, 4, 12, dtype=torch.float64)
    given = torch.zeros(8, VOCAB_SIZE, dtype=dtype), longs(2), nodes, longs(2, 4), longs(2), 5
    kernel.list_logprobs_triton(*given, out, None)
    assert set(compiled) == {"list_logprobs_kernel"}


@pytest.mark.parametrize("is_in_place", [False, True])
@pytest.mark.parametrize(("path_len", "is_tree"), [(0, False), (7, False), (7, True)])
@pytest.mark.sampled(2, slow=2)
def test_penalise(path_len: int, is_tree: bool, is_in_place: bool, compile_launches) -> None:
    from specdec_kernels.triton.penalise import PathRows, Texts, kernel

    compiled = compile_launches(kernel)
    texts = Texts(longs(5), torch.ones(5), longs(3), torch.ones(3, 2))
    paths = PathRows(
        longs(4), longs(4), longs(4), longs(4), longs(8), longs(8) if is_tree else None, path_len
    )
    logits = torch.ones(4, VOCAB_SIZE)
    out = logits if is_in_place else torch.empty_like(logits)
    kernel.penalise_triton(logits, texts, paths, out, None)
    assert set(compiled) == {"penalise_kernel"}


@pytest.mark.parametrize(("dtype", "is_tree"), [(torch.bfloat16, False), (torch.float32, True)], ids=str)
def test_accepted_rows(dtype: torch.dtype, is_tree: bool, compile_launches) -> None:
    from specdec_kernels.triton.accepted_rows import kernel

    compiled = compile_launches(kernel)
    states = torch.ones(4, 12, 4096, dtype=dtype)
    nodes = longs(3, 8) if is_tree else None
    kernel.accepted_rows_triton(states, longs(3), longs(3), nodes, states, None)
    assert set(compiled) == {"accepted_rows_kernel"}


def test_advance_rows(compile_launches) -> None:
    from specdec_kernels.triton.advance_rows import LoopRows, Masks, kernel

    compiled = compile_launches(kernel)
    rows = LoopRows(*(longs(size) for size in (12, 12, 12, 5, 4, 12, 3, 3, 3, 3, 3, 4)))
    kernel.advance_rows_triton(rows, longs(50), 4, Masks(9, -1, 3), None)
    assert set(compiled) == {"advance_rows_kernel"}


def test_move_rows(compile_launches) -> None:
    from specdec_kernels.triton.move_rows import PassRows, kernel

    compiled = compile_launches(kernel)
    rows = PassRows(*(longs(size) for size in (12, 12, 12, 5, 4, 4, 5)))
    kernel.move_rows_triton(rows, longs(50), None)
    assert set(compiled) == {"move_rows_kernel"}


def test_append_tokens(compile_launches) -> None:
    from specdec_kernels.triton.append_tokens import kernel

    compiled = compile_launches(kernel)
    table = torch.zeros((3, 40), dtype=torch.int32)
    kernel.append_tokens_triton(table, longs(3), longs(2), longs(2), longs(2, 5), None)
    assert set(compiled) == {"append_tokens_kernel"}


@pytest.mark.parametrize(("dtype", "keeps_first"), [(torch.int32, False), (torch.int64, True)], ids=str)
def test_ngram_match(dtype: torch.dtype, keeps_first: bool, compile_launches) -> None:
    from specdec_kernels.triton.ngram_match import kernel

    compiled = compile_launches(kernel)
    tokens = torch.zeros((2, 8192), dtype=dtype)
    max_nodes = longs(2) if keeps_first else None
    kernel.ngram_match_triton(
        tokens,
        longs(2),
        max_nodes,
        max_nodes,
        1,
        1 if keeps_first else 4,
        keeps_first,
        dtype is torch.int64,
        longs(2, 5),
        longs(2),
        None,
    )
    assert set(compiled) == {"match_tile_kernel", "copy_match_kernel"}
