"""Which backend an operation takes, and what its public function refuses."""

import pytest
import torch

from specdec_kernels.triton import Backend, NoiseKeys, PathVerdict, strict_verify, use_backend
from specdec_kernels.triton.dispatch import VARIABLE, backend_for
from specdec_kernels.triton.noise.config import LaunchConfig, heuristic


def test_the_cpu_takes_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert backend_for(torch.zeros(1)) is Backend.REFERENCE


def test_a_with_block_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.setenv(VARIABLE, "triton")
    assert backend_for(torch.zeros(1)) is Backend.TRITON
    with use_backend("reference"):
        assert backend_for(torch.zeros(1)) is Backend.REFERENCE
    assert backend_for(torch.zeros(1)) is Backend.TRITON


def test_a_backend_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="'cuda'; backends are reference, triton"), use_backend("cuda"):
        pass
    monkeypatch.setenv(VARIABLE, "fast")
    with pytest.raises(ValueError, match="SPECDEC_KERNELS: there is no backend 'fast'"):
        backend_for(torch.zeros(1))


def test_triton_without_triton_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specdec_kernels.triton.dispatch._has_triton", lambda: False)
    with pytest.raises(RuntimeError, match="pip install triton"), use_backend("triton"):
        backend_for(torch.zeros(1))


def _call(**changes: torch.Tensor) -> None:
    arguments = {
        "logits": torch.zeros(4, 8),
        "draft_token_ids": torch.zeros((2, 1), dtype=torch.int64),
        "row_starts": torch.tensor([0, 2]),
        "num_nodes": torch.tensor([1, 1]),
        "temperatures": torch.ones(2),
        "keys": NoiseKeys(*[torch.zeros(2, dtype=torch.int64)] * 3),
    }
    strict_verify(**(arguments | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"logits": torch.zeros(8)}, r"logits must be floating point \[R, V\]"),
        ({"logits": torch.zeros(4, 0)}, "V > 0"),
        ({"logits": torch.zeros((4, 8), dtype=torch.int64)}, "not int64"),
        ({"logits": torch.zeros(8, 4).T}, "logits must have unit stride along its last dimension"),
        (
            {"draft_token_ids": torch.zeros(2, 1)},
            r"draft_token_ids must be int32 or int64 \[B, N\], not float32",
        ),
        (
            {"draft_token_ids": torch.zeros((3, 2), dtype=torch.int64).T},
            "draft_token_ids must have unit stride along its last dimension",
        ),
        ({"row_starts": torch.tensor([0])}, r"row_starts must be contiguous int32 or int64 \[2\]"),
        ({"num_nodes": torch.tensor([1.0, 1.0])}, "num_nodes must be contiguous int32 or int64"),
        ({"logits": torch.zeros(0, 8)}, "at least one row"),
        (
            {"num_nodes": torch.ones(2, dtype=torch.int64, device="meta")},
            "num_nodes is on meta, the rest on cpu",
        ),
        (
            {"out": PathVerdict(torch.zeros(2), torch.zeros(2, 2), torch.zeros(2, 1), torch.zeros(2))},
            r"out.num_accepted must be contiguous int64 \[2\]",
        ),
    ],
)
def test_wrong_arguments_are_named(changes: dict[str, torch.Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _call(**changes)


@pytest.mark.parametrize("vocab_size", [1, 17, 32, 8193, 151936])
def test_launch_configurations_cover_the_vocabulary(vocab_size: int) -> None:
    config = heuristic(vocab_size)
    assert config.num_tiles(vocab_size) * config.block >= vocab_size
    assert (config.num_tiles(vocab_size) - 1) * config.block < vocab_size


def test_a_block_that_is_no_power_of_two_is_refused() -> None:
    with pytest.raises(ValueError, match="block=48"):
        LaunchConfig(48, 4)
