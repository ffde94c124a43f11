"""Launch parameters that were measured take the place of the heuristic, where there are any."""

import json
from collections.abc import Callable, Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from specdec_kernels.triton import Backend, tuned, use_backend
from specdec_kernels.triton.paged_attention.config import LaunchConfig as AttentionConfig
from specdec_kernels.triton.paged_attention.config import Problem
from specdec_kernels.triton.silu_mul.config import LaunchConfig, candidates, heuristic
from specdec_kernels.triton.tuned import launch_config, slug
from specdec_kernels.triton.workloads import WORKLOADS

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")
EVERY = [(op, sizes) for op, workload in WORKLOADS.items() for sizes in workload.sizes[:1]]
Write = Callable[..., None]


@pytest.fixture
def measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes measurements of an operation for the only GPU there is, the Imaginary 9000."""

    def write(op: str, entries: list[tuple[list[int], dict[str, int | None]]]) -> None:
        file = tmp_path / op / "imaginary-9000.json"
        file.parent.mkdir()
        file.write_text(json.dumps({"entries": [{"sizes": s, "config": c} for s, c in entries]}))

    def forget() -> None:
        tuned.measured.cache_clear()
        tuned._nearest.cache_clear()
        tuned._slug.cache_clear()

    monkeypatch.setattr(tuned, "FOLDER", tmp_path)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "Imaginary 9000")
    forget()
    yield write
    forget()


def chosen(device: torch.device, size: int) -> LaunchConfig:
    return launch_config("silu_mul", heuristic, candidates, device, size)


def test_without_a_file_for_the_device_the_heuristic_decides(measure: Write) -> None:
    assert chosen(GPU, 8192) == heuristic(8192)
    measure("silu_mul", [([8192], {"block": 256, "num_warps": 2})])
    assert chosen(CPU, 8192) == heuristic(8192)


def test_the_nearest_problem_counts_in_logarithms(measure: Write) -> None:
    near, far = {"block": 256, "num_warps": 2}, {"block": 512, "num_warps": 2}
    measure("silu_mul", [([1000], near), ([16000], far)])
    assert chosen(GPU, 1000) == LaunchConfig(**near)
    assert chosen(GPU, 3900) == LaunchConfig(**near)  # the middle is at 4000, not at 8500
    assert chosen(GPU, 4100) == LaunchConfig(**far)
    assert chosen(GPU, 10**6) == LaunchConfig(**far)


def test_what_does_not_fit_the_call_gives_way_to_the_nearest_that_does(measure: Write) -> None:
    measure("silu_mul", [([8192], {"block": 1024, "num_warps": 2})])
    assert chosen(GPU, 100) == LaunchConfig(128, 2)  # a row has no 1024 numbers
    best = {"block_rows": 16, "block_tokens": 32, "num_warps": 8}
    known = Problem(8, 8, 4, 8, 128, 128, 2, 8192)
    measure(
        "paged_attention",
        [(tuned.numbers([known]), best | {"num_stages": 2, "num_splits": 4, "split_size": None})],
    )
    module = import_module("specdec_kernels.triton.paged_attention.config")
    problem = Problem(8, 8, 32, 1, 128, 128, 2, 4096)  # a tile of 16 rows does not hold 32 heads
    found = launch_config("paged_attention", module.heuristic, module.candidates, GPU, problem)
    assert found in module.candidates(problem)
    assert (found.block_rows, found.block_tokens, found.num_warps) == (32, 32, 8)
    assert launch_config("paged_attention", module.heuristic, module.candidates, GPU, known).block_rows == 16


def test_attention_that_must_not_depend_on_the_batch_ignores_measurements(measure: Write) -> None:
    from specdec_kernels.triton.paged_attention import make_workspace

    sizes = tuned.numbers([Problem(1, 1, 4, 2, 16, 16, 4, 4096)])
    config = {
        "block_rows": 64,
        "block_tokens": 64,
        "num_warps": 4,
        "num_stages": 2,
        "num_splits": 9,
        "split_size": None,
    }
    measure("paged_attention", [(sizes, config)])
    query, pages = torch.empty(1, 8, 16), torch.empty(4, 16, 2, 16)
    workspace = make_workspace(
        query, pages, pages, num_requests=1, max_context_len=4096, batch_invariant=True
    )
    assert len(workspace.sums) == 4  # shares of 1024 tokens


def test_names_of_devices_are_names_of_files() -> None:
    assert slug("NVIDIA GeForce RTX 4090 (Laptop)") == "nvidia-geforce-rtx-4090-laptop"


@pytest.mark.parametrize(("op", "sizes"), EVERY, ids=[op for op, _ in EVERY])
def test_every_operation_asks_for_its_sizes_and_launches_with_what_it_gets(
    op: str, sizes: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On tensors without memory, with a launcher that only looks at its configuration."""
    pytest.importorskip("triton")
    module = import_module(f"specdec_kernels.triton.{op}")
    launcher = import_module(
        f"specdec_kernels.triton.{op}.{'launcher' if op == 'rejection_verify' else 'kernel'}"
    )
    asked, launched = [], []

    def find(name: str, heuristic: Any, candidates: Any, device: torch.device, *asked_sizes: Any) -> Any:
        asked.append((name, asked_sizes, device.type))
        return candidates(*asked_sizes)[-1]

    monkeypatch.setattr(module, "launch_config", find)
    monkeypatch.setattr(
        launcher, f"{op}_triton", lambda *args, **named: launched.append((*args, *named.values()))
    )
    with use_backend(Backend.TRITON):
        WORKLOADS[op].make(torch.device("meta"), *sizes)(None)
    assert asked == [(op, sizes, "meta")]
    config = import_module(f"specdec_kernels.triton.{op}.config").candidates(*sizes)[-1]
    assert [value for value in launched[0] if value == config and type(value) is type(config)] == [config]


def committed() -> list[Path]:
    return sorted((Path(tuned.__file__).parent / "configs").glob("*/*.json"))


def wrong_entries(op: str, text: str) -> list[dict[str, Any]]:
    """Entries whose sizes are not the heuristic's or whose configuration is none of the operation's."""
    config = import_module(f"specdec_kernels.triton.{op}.config").LaunchConfig
    count = len(tuned.numbers(WORKLOADS[op].sizes[0]))
    names = {field.name for field in fields(config)}
    entries: list[dict[str, Any]] = json.loads(text)["entries"]
    return [e for e in entries if len(e["sizes"]) != count or set(e["config"]) != names]


def test_measurements_that_are_committed_fit_their_operations() -> None:
    for file in committed():
        assert file.parent.name in WORKLOADS
        assert wrong_entries(file.parent.name, file.read_text()) == []


def test_measurements_that_fit_nothing_are_found() -> None:
    good = {"sizes": [8, 1, 4, 8, 128, 128, 2, 1024], "config": vars(AttentionConfig(16, 16, 4))}
    bad = [good | {"sizes": [1]}, good | {"config": {"block_rows": 16}}]
    assert wrong_entries("paged_attention", json.dumps({"entries": [good, *bad]})) == bad
