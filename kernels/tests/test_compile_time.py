"""Compilation of kernels counts for no step."""

from __future__ import annotations

import time

import pytest
from triton import knobs

from specdec.interfaces import ONCE
from specdec_kernels.triton.compile_time import watch_compilation


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("jit_cache_hook", "jit_post_compile_hook"):
        monkeypatch.setattr(knobs.runtime, name, None)


@pytest.mark.usefixtures("hooks")
def test_the_time_between_its_beginning_and_its_end_is_counted() -> None:
    watch_compilation()
    before = ONCE.seconds
    assert (
        knobs.runtime.jit_cache_hook(key="a", repr="", is_manual_warmup=False) is False
    )  # which goes on to compile
    time.sleep(0.05)
    knobs.runtime.jit_post_compile_hook(key="a", repr="", is_manual_warmup=False)
    counted = ONCE.seconds - before
    assert counted >= 0.05
    knobs.runtime.jit_post_compile_hook(key="a", repr="", is_manual_warmup=False)
    assert ONCE.seconds - before == counted


@pytest.mark.usefixtures("hooks")
def test_hooks_of_others_stay() -> None:
    def theirs(**_: object) -> bool:
        return False

    knobs.runtime.jit_cache_hook = theirs
    watch_compilation()
    assert knobs.runtime.jit_cache_hook is theirs
    assert knobs.runtime.jit_post_compile_hook is None
