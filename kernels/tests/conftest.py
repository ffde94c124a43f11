"""Fixtures that the tests of kernels share, and the way to what else they share, `kernelcheck` and `kernelcompile`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest
import torch

from specdec_kernels.triton import Backend, use_backend

ON_CPU, ON_GPU = pytest.mark.interpreter, pytest.mark.gpu

MUTANT = "mutant_kernels"
"""Package that a changed operation is imported from."""

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


@pytest.fixture
def check_mutant(poison: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CheckMutant:
    """Runs a check on an operation's kernels on the CPU: it has to pass, or to fail if a piece of their source is replaced."""

    def run(op: str, change: tuple[str, str] | None, check: Callable[[], None]) -> None:
        from triton.runtime.errors import InterpreterError

        with use_backend(Backend.TRITON):
            if change is None:
                check()
                return
            package = Path(str(import_module(f"specdec_kernels.triton.{op}").__file__)).parent
            sources = {
                file.name: file.read_text() for file in package.glob("*.py") if file.stem != "reference"
            }
            assert sum(text.count(change[0]) for text in sources.values()) == 1
            (tmp_path / MUTANT).mkdir()
            for name, text in sources.items():
                changed = text.replace(*change).replace(f"specdec_kernels.triton.{op}.", f"{MUTANT}.")
                (tmp_path / MUTANT / name).write_text(
                    changed.replace(f"{MUTANT}.reference", f"specdec_kernels.triton.{op}.reference")
                )
            monkeypatch.syspath_prepend(str(tmp_path))
            launcher = "launcher" if "launcher.py" in sources else "kernel"
            launch = getattr(import_module(f"{MUTANT}.{launcher}"), f"{op}_triton")
            monkeypatch.setattr(
                import_module(f"specdec_kernels.triton.{op}.{launcher}"), f"{op}_triton", launch
            )
            for name in [name for name in sys.modules if name.partition(".")[0] == MUTANT]:
                del sys.modules[name]
            with pytest.raises((AssertionError, InterpreterError)) as caught:
                check()
            assert caught.type is AssertionError or "NaN" in str(caught.value), "numpy only refuses poison"

    return run


@pytest.fixture
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that was compiled before counts."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
