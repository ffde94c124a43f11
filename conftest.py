"""What holds for every test: one thread, and the one place where tests are skipped for want of a GPU or the interpreter."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Iterator
from pathlib import Path

# Before torch is imported, and inherited by the processes that tests start: rounding then does not depend on the number
# of cores, and on a machine with other work threads do not wait for each other. `OMP_NUM_THREADS=2 make test` tests threads.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
# Models that tests dequantise are kept beside pytest's own cache, not in the user's.
os.environ.setdefault("SPECDEC_CACHE", str(Path(__file__).parent / ".pytest_cache" / "specdec"))

import pytest
import torch

from specdec.assembly import build

# In a fresh clone the first test that needs compiled code says that it is being compiled, whichever that is.
logging.getLogger("specdec.compiled").setLevel(logging.ERROR)

adapts_by_default = build.adapts_by_default
# Tests count drafts, so k stays k unless a test sets `adaptive`, or asks for the fixture `defaults_of_users`.
build.adapts_by_default = lambda sampler: False

pytest_plugins = ["speccheck.interpreter", "speccheck.levels", "speccheck.model_files", "speccheck.site"]

SKIPPED = {
    "gpu": (not torch.cuda.is_available(), "there is no GPU"),
    "interpreter": (
        os.environ.get("TRITON_INTERPRET") != "1",
        "needs TRITON_INTERPRET=1: make test-interpreter",
    ),
}
"""Markers, whether their tests cannot run here, and why."""
SLOW = ("test_tokens_follow_their_q",)
"""Tests of the conformance kit that take seconds for each configuration."""
FEW_PROMISES = (
    "test_node_caps_are_kept",
    "test_a_start_below_what_is_held_means_forget_from_there",
    "test_rows_do_not_depend_on_each_other",
    "test_q_is_a_distribution",
    "test_sampled_text_is_that_of_plain_decoding",
)
"""Those that are not slow for a configuration like another one: what is counted, taken back and drawn there, in a batch, and
a text of the engine."""
LONGEST = (
    "core/tests/engine/test_hostile_proposers.py",  # float32 in a process of its own
    "tests/test_docs.py",  # bfloat16
    "cli/tests/tune/test_tune.py",
    "benchmarks/tests/test_verified_rows.py",
    "plugins/self_draft/tests/test_conformance.py",
    "train/tests/heads/test_own_answers.py",
    "train/tests/heads/test_command.py",
    "zoo/tests/",
    "plugins/composite/tests/test_conformance.py",
    "plugins/draft_model/tests/test_conformance.py",
    "runtime/tests/gguf/test_models.py",
    "server/tests/test_load.py",
    "server/tests/test_command.py",
    "server/tests/test_data_parallel_command.py",
    "benchmarks/tests/test_visit.py",
    "tests/",  # a whole file is one process's
)
"""They begin first, in this order, so that at the end no process waits for another one's. The first two have different
functions compiled where nothing has been compiled before."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Have no collection walk modules and tests, now or later: what tests leave behind, as engines, is then collected soon."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Seed what models and tests draw from without a generator, also in fixtures that several tests share."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def same_threads() -> Iterator[None]:
    """Take back what a test did to torch's number of threads."""
    yield
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))


@pytest.fixture(autouse=True)
def patient_guard(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no busy machine make a proposer too slow, which would pause it: tests of that are marked `time_budget`."""
    if request.node.get_closest_marker("time_budget") is None:
        monkeypatch.setattr("specdec.engine.containment.guard._MIN_BUDGET_S", 600.0)


@pytest.fixture
def defaults_of_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `adaptive` have its default."""
    monkeypatch.setattr(build, "adapts_by_default", adapts_by_default)


@pytest.hookimpl(tryfirst=True)  # before tests are left out by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for marker, (is_missing, reason) in SKIPPED.items():
        if is_missing:
            for item in items:
                if item.get_closest_marker(marker) is not None:
                    item.add_marker(pytest.mark.skip(reason=reason))
    for item in items:
        is_like_another = item.get_closest_marker("few_promises") is not None
        if item.name in SLOW:
            item.add_marker(pytest.mark.full if is_like_another else pytest.mark.slow)
        elif is_like_another and item.name not in FEW_PROMISES:
            item.add_marker(pytest.mark.slow)
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    return next((i for i, prefix in enumerate(LONGEST) if item.nodeid.startswith(prefix)), len(LONGEST))
