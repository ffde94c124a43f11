"""A tiny target on disk and loaded, and what is measured with it."""

from __future__ import annotations

from typing import Any

import pytest

from specdec.engine_options import EngineOptions
from specdec_cli.bench import Session, Workload
from specdec_cli.bench.contender import BASELINE
from specdec_runtime.loading.target import LoadedTarget, load_target

SCRIPTED = "speccheck.proposers.Scripted"
PROMPTS = ((11, 12, 13, 14, 11, 12), (40, 41, 42), (7, 8, 9, 10))


@pytest.fixture(scope="session")
def target(tiny_model: str) -> LoadedTarget:
    return load_target(EngineOptions(model=tiny_model))


@pytest.fixture(scope="session")
def workload() -> Workload:
    return Workload(PROMPTS, max_tokens=24, temperature=0.8, seed=5)


@pytest.fixture(scope="session")
def texts(target: LoadedTarget, workload: Workload) -> list[list[int]]:
    """Prompts and what plain decoding makes of them."""
    turn = Session(target, BASELINE, workload).run()
    return [[*prompt, *ids] for prompt, ids in zip(workload.prompts, turn.token_ids, strict=True)]


@pytest.fixture(scope="session")
def knowing(texts: list[list[int]]) -> dict[str, Any]:
    """The configuration of a proposer that knows the answers."""
    return {"method": SCRIPTED, "num_speculative_tokens": 3, "texts": texts}
