"""Hostile proposers under `LLM` and `AsyncLLM`: output as without speculation, failures counted, the engine goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from speccheck.hostile.trial import cases

CASES = list(cases())
SUPPORT = Path(__file__).parents[3] / "tests" / "support"
SECONDS = 600.0
"""For all cases; they take about half a minute."""


@pytest.fixture(scope="module")
def problems(request: pytest.FixtureRequest) -> dict[tuple[str, bool], str | None]:
    """What is wrong, by case and interface, from a process that is started again behind the case that ends it."""
    found: dict[tuple[str, bool], str | None] = {}
    selected = [item for item in request.session.items if item.path == request.path]
    left = [str(item.callspec.params["case"]) for item in selected if hasattr(item, "callspec")]
    while left:
        output = tried(left)
        for line in output.splitlines():
            if line.startswith("{"):
                result = json.loads(line)
                found[result["case"], result["is_async"]] = result["problem"]
        begun = {name for name, _ in found}
        assert begun.intersection(left), f"no case could be tried: {output[-2000:]}"
        left = [name for name in left if name not in begun]
    return found


def tried(names: list[str]) -> str:
    environment = os.environ | {"PYTHONPATH": str(SUPPORT)}
    process = subprocess.Popen(
        [sys.executable, "-m", "speccheck.hostile.trial"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        return process.communicate(json.dumps(names), timeout=SECONDS)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()[0]


def test_there_are_enough() -> None:
    assert len({case.kind for case in CASES}) >= 100
    assert len(set(map(str, CASES))) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.sampled(12, slow=60)
def test_it_costs_only_its_own_drafts(problems, case) -> None:
    interfaces = [False, True] if case.is_async is None else [case.is_async]
    assert {is_async: problems[str(case), is_async] for is_async in interfaces} == dict.fromkeys(interfaces)
