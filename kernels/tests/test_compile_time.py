"""Compilation of kernels counts for no step."""

from __future__ import annotations

import time

import pytest
from triton import knobs

from specdec.interfaces import step_time
from specdec_kernels.triton.compile_time import watch_compilation


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("jit_cache_hook", "jit_post_compile_hook"):
        monkeypatch.setattr(knobs.runtime, name, None)


@pytest.mark.usefixtures("hooks")
def test_the_time_between_its_beginning_and_its_end_is_counted() -> None:
    watch_compilation()
    started, begun = time.perf_counter(), step_time()
    assert (
        knobs.runtime.jit_cache_hook(key="a", repr="", is_manual_warmup=False) is False
    )  # which goes on to compile
    time.sleep(0.05)
    knobs.runtime.jit_post_compile_hook(key="a", repr="", is_manual_warmup=False)
    passed, counted = time.perf_counter() - started, step_time() - begun
    assert passed - counted >= 0.05
    time.sleep(0.05)
    knobs.runtime.jit_post_compile_hook(key="a", repr="", is_manual_warmup=False)
    assert step_time() - begun >= counted + 0.05, "it has ended"


@pytest.mark.usefixtures("hooks")
def test_hooks_of_others_stay() -> None:
    def theirs(**_: object) -> bool:
        return False

    knobs.runtime.jit_cache_hook = theirs
    watch_compilation()
    assert knobs.runtime.jit_cache_hook is theirs
    assert knobs.runtime.jit_post_compile_hook is None
