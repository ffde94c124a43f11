"""The tuner, on the CPU: with operations that run as their references, and a timer that knows what it wants."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from specdec_kernels.triton import silu_mul, tune
from specdec_kernels.triton.silu_mul.config import LaunchConfig, candidates, heuristic
from specdec_kernels.triton.workloads import WORKLOADS, Call, Workload

CPU = torch.device("cpu")
SIZES = [(2048,), (8192,)]
BEST = LaunchConfig(256, 2)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[LaunchConfig]:
    """The configurations that small calls of `silu_mul` ran with; one has a wrong result, one does not fit the device."""
    seen: list[LaunchConfig] = []

    def make(device: torch.device, size: int) -> Call:
        gate, up = torch.randn(2, 3, size, device=device)

        def call(config: LaunchConfig) -> tuple[torch.Tensor, ...]:
            seen.append(config)
            if config == LaunchConfig(512, 2):
                raise MemoryError
            out = silu_mul(gate, up, config=config)
            return (out + 1 if config == LaunchConfig(256, 4) else out,)

        return call

    monkeypatch.setitem(WORKLOADS, "silu_mul", Workload(SIZES, make))
    return seen


def timer(call: Callable[[], object]) -> float:
    """The fastest of all give wrong results or do not run; after these comes `BEST`."""
    assert isinstance(call, partial)
    call()
    config = call.args[0]
    if config in (LaunchConfig(256, 4), LaunchConfig(512, 2)):
        return 1.0
    return 5.0 if config == BEST else 9.0


def test_the_fastest_of_the_right_ones_is_found(calls: list[LaunchConfig]) -> None:
    entries = tune.tune("silu_mul", timer, CPU, refused=(MemoryError,))
    assert entries == [
        {
            "sizes": list(sizes),
            "config": {"block": 256, "num_warps": 2},
            "microseconds": 5.0,
            "heuristic_microseconds": 9.0,
            "left_out": 2,
        }
        for sizes in SIZES
    ]


def test_variants_take_turns_and_medians_count(calls: list[LaunchConfig]) -> None:
    times = iter([1.0, 50.0] * 100)  # whoever comes first is fast, once in two rounds
    order: list[Any] = []

    def unsteady(call: Any) -> float:
        order.append(call.args[0])
        call()
        return next(times)

    tune.tune("silu_mul", unsteady, CPU, refused=(MemoryError,))
    one_round = order[: len(set(order))]
    assert one_round[0] == heuristic(2048)
    assert set(one_round) < {heuristic(2048), *candidates(2048)}
    assert order == one_round * (len(SIZES) * tune.ROUNDS)


def test_what_no_one_foresaw_is_not_swallowed(calls: list[LaunchConfig]) -> None:
    with pytest.raises(MemoryError):
        tune.tune("silu_mul", timer, CPU)


def test_the_file_says_what_it_was_measured_on(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    entries = [{"sizes": [1], "config": {"block": 32, "num_warps": 1}}]
    file = tune.write("silu_mul", "Imaginary 9000", entries, tmp_path)
    assert file == tmp_path / "silu_mul" / "imaginary-9000.json"
    found = json.loads(file.read_text())
    assert found.pop("entries") == entries
    assert found.pop("device") == "Imaginary 9000"
    assert found.pop("command") == "python -m specdec_kernels.triton.tune silu_mul"
    assert sorted(found) == ["torch", "triton"]


def test_without_a_gpu_one_sentence_and_status_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert tune.main(["kv_write"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "Launch parameters are measured on a CUDA device, and torch finds none here.\n"


def test_an_operation_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        tune.main(["kv_read"])
    assert stop.value.code == 2
    assert "kv_write" in capsys.readouterr().err


@pytest.mark.gpu
@pytest.mark.parametrize("op", ["silu_mul", "gumbel_sample", "kv_compact"])
def test_on_a_gpu(op: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WORKLOADS, op, Workload(WORKLOADS[op].sizes[:1], WORKLOADS[op].make))
    monkeypatch.setattr(tune, "write", partial(tune.write, folder=tmp_path))
    assert tune.main([op]) == 0
    (file,) = tmp_path.glob(f"{op}/*.json")
    assert json.loads(file.read_text())["entries"][0]["microseconds"] > 0
