"""Fixtures that the tests of kernels share, and the way to what else they share, `kernelcheck` and `kernelcompile`."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest
import torch

from specdec_kernels import Backend, use_backend

SUPPORT = str(Path(__file__).parent / "support")
if SUPPORT not in sys.path:
    sys.path.insert(0, SUPPORT)

ON_CPU, ON_GPU = pytest.mark.interpreter, pytest.mark.gpu

CheckMutant = Callable[[str, tuple[str, str] | None, Callable[[], None]], None]


@pytest.fixture
def poison() -> Iterator[None]:
    """Fill what torch.empty returns: with NaN, or the greatest integer."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(
    params=[
        "cpu-reference",
        pytest.param("cpu-triton", marks=ON_CPU),
        pytest.param("cuda-triton", marks=ON_GPU),
    ]
)
def device(request: pytest.FixtureRequest, poison: None) -> Iterator[torch.device]:
    """A device, with the backend under test chosen and uninitialised memory poisoned."""
    name, backend = request.param.split("-")
    with use_backend(backend):
        yield torch.device(name)


@pytest.fixture(params=[pytest.param("cpu", marks=ON_CPU), pytest.param("cuda", marks=ON_GPU)])
def kernel_device(request: pytest.FixtureRequest, poison: None) -> Iterator[torch.device]:
    """A device with the kernels, for what the reference does not promise: bits."""
    with use_backend(Backend.TRITON):
        yield torch.device(request.param)


@pytest.fixture(autouse=True)
def _interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    if os.environ.get("TRITON_INTERPRET") == "1":
        from kernelcheck import interpret_as_a_gpu

        interpret_as_a_gpu(monkeypatch)


@pytest.fixture
def check_mutant(poison: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CheckMutant:
    """Runs a check on an operation's kernels on the CPU: it has to pass, or to fail if a piece of their source is replaced."""

    def run(op: str, change: tuple[str, str] | None, check: Callable[[], None]) -> None:
        with use_backend(Backend.TRITON):
            if change is None:
                check()
                return
            kernel = import_module(f"specdec_kernels.{op}.kernel")
            assert kernel.__file__ is not None
            source = Path(kernel.__file__).read_text()
            assert source.count(change[0]) == 1
            file = tmp_path / "mutant_kernel.py"
            file.write_text(source.replace(*change))
            spec = importlib.util.spec_from_file_location(file.stem, file)
            assert spec is not None
            assert spec.loader is not None
            mutant = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(mutant)
            monkeypatch.setattr(kernel, f"{op}_triton", getattr(mutant, f"{op}_triton"))
            with pytest.raises(AssertionError):
                check()

    return run


@pytest.fixture
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that was compiled before counts."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
