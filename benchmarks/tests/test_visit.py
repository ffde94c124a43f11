"""A whole visit as a rehearsal, and how it handles parts: order, limits, and what was done before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import visit
from device_parts import PARTS as DEVICE_PARTS
from visit import PARTS, Part, Visit

pytestmark = pytest.mark.slow  # the whole of it, and processes

MEASURED = [name for name in PARTS if name != "tests"]


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a rehearsal of all but the tests, and what it printed."""
    out = tmp_path_factory.mktemp("visit")
    command = [
        sys.executable,
        "benchmarks/visit.py",
        "--quick",
        "--out",
        str(out),
        "--commit",
        "c",
        "--parts",
        *MEASURED,
    ]
    ended = subprocess.run(command, cwd=visit.ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, (
        ended.stdout + ended.stderr + "".join(log.read_text()[-2000:] for log in out.glob("*.log"))
    )
    return out, ended.stdout


def rows(out: Path, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((out / f"{name}.json").read_text())["rows"]
    return found


@pytest.mark.timeout(900)
def test_parts_run_in_order_and_all_points_are_measured(rehearsed: tuple[Path, str]) -> None:
    out, said = rehearsed
    assert [line.split(":")[0] for line in said.splitlines() if ": done after" in line] == MEASURED
    sizes = {
        name: [(row["batch_size"], row["context"], row["k"]) for row in rows(out, name)]
        for name in visit._POINTS
    }
    short = [(1, 12, 0), (2, 12, 0), (3, 12, 0)]
    assert sizes["plain"] == [*short, (1, 64, 0), (2, 64, 0)]
    assert sizes["sampled"] == short
    assert sizes["eagle3"] == [(1, 12, 3), (2, 12, 3), (3, 12, 3)]
    assert sizes["methods"] == [*[(1, 64, 3), (2, 64, 3)] * 2, *short]
    for name in visit._POINTS:
        for row in rows(out, name):
            assert (
                min(row[key] for key in ("prompts_s", "step_ms", "forward_ms", "tokens_per_s", "num_bytes"))
                > 0
            )
            assert (row["mean_acceptance_length"] > 1) is (row["k"] > 0)
    assert [row["mean_acceptance_length"] for row in rows(out, "methods")[:2]] == [
        4.0,
        4.0,
    ]  # the answer is in the prompt
    assert all(row["busy_ms"] > 0 and row["kernels"] for row in rows(out, "profiler"))
    (arrived,) = rows(out, "arrivals")
    assert arrived["num_requests"] == 6
    assert arrived["first_token_ms"]["p99"] >= arrived["first_token_ms"]["median"] > 0
    kernels, *tuned = rows(out, "tuning")
    assert [row["op"] for row in kernels["kernels"]["rows"] if not row["is_equal"]] == []
    assert {row["problem"].split(",")[0] for row in tuned} == {"paged_attention", "matmul_invariant"}
    assert all(row["best_ms"] <= row["heuristic_ms"] for row in tuned)
    assert json.loads((out / "launch_configurations.json").read_text())["rows"] == tuned


@pytest.mark.timeout(900)
def test_goals_are_told_and_kept_missed_ones_too(rehearsed: tuple[Path, str]) -> None:
    out, said = rehearsed
    kept = json.loads((out / "visit.json").read_text())
    assert kept["is_rehearsal"]
    assert "claim nothing here" in said
    verdicts = {True: "met", False: "NOT MET", None: "not measured"}
    for goal in kept["goals"]:
        (line,) = [line for line in said.splitlines() if f" {goal['name']}: at" in line]
        assert line.startswith(verdicts[goal["is_met"]])
    assert kept["goals"][0]["is_met"] is None  # the processor's caches make its bound meaningless
    assert set(MEASURED) | {"environment", "goals"} <= set(kept)


def test_a_missed_goal_is_told_of_parts_that_were_cut_off_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    point = {
        "name": "plain", "batch_size": 1, "context": 128, "k": 0, "prompts_s": 0.1, "step_ms": 4.66, "forward_ms": 4.4,
        "tokens_per_s": 215.0, "mean_acceptance_length": 1.0, "num_bytes": 15e9, "head_bytes": 0.0, "bound_ms": 3.13,
        "head_bound_ms": 0.0,
    }  # fmt: skip
    content = {
        "commit": "c",
        "rows": [point],
        "environment": {"device": {"type": "cuda", "name": "NVIDIA H200"}},
    }
    (tmp_path / "plain.partial.json").write_text(json.dumps(content))
    kept = made(tmp_path).report()
    said = capsys.readouterr().out
    assert "NOT MET      plain step at batch 1 over reading its bytes: at most 1.25, measured 1.49" in said
    assert "met          verify + commit + host at batch 1, ms: at most 0.31, measured 0.26" in said
    assert "met          plain step at batch 1, ms, as seen before" in said
    assert not kept["is_rehearsal"]


def made(out: Path, commit: str = "c", seconds: float = 60.0) -> Visit:
    return Visit(out, commit, dict(os.environ), seconds)


def test_what_was_done_is_not_run_again_unless_the_commit_is_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def parts(word: str) -> dict[str, Part]:
        fails = Part(30, ("-c", f"print({word!r}); raise SystemExit({word == 'one'} * 3)"))
        return {"good": Part(30, ("-c", f"print({word!r})")), "bad": fails}

    assert made(tmp_path).run(parts("one")) == 1
    assert "good: done after" in (said := capsys.readouterr().out)
    assert "bad: failed with exit status 3" in said
    assert made(tmp_path).run(parts("two")) == 0
    said = capsys.readouterr().out
    assert "good: done before" in said
    assert "bad: done after" in said
    assert ((tmp_path / "good.log").read_text(), (tmp_path / "bad.log").read_text()) == ("one\n", "two\n")
    assert made(tmp_path, "d").run(parts("three")) == 0
    assert (tmp_path / "good.log").read_text() == "three\n"


def test_a_part_over_its_limit_is_ended_and_the_next_one_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sleeps = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    started = time.monotonic()
    assert made(tmp_path).run({"long": Part(1.0, ("-c", sleeps)), "next": Part(30, ("-c", ""))}) == 1
    assert time.monotonic() - started < 30
    said = capsys.readouterr().out
    assert "long: over its limit of 1 s" in said
    assert "next: done after" in said
    assert not (tmp_path / "long.json").exists()


def test_when_the_visit_is_over_the_rest_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sleeps = ("-c", "import time; time.sleep(60)")
    assert made(tmp_path, seconds=1.0).run({"long": Part(30, sleeps), "next": Part(30, ("-c", ""))}) == 2
    said = capsys.readouterr().out
    assert "long: over its limit of 1 s" in said
    assert "next: no time is left" in said


@pytest.mark.timeout(300)
def test_a_part_in_a_shared_process_that_ran_out_leaves_the_rest_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text(
        "import json, sys, time\nfrom pathlib import Path\n"
        "out, names = Path(sys.argv[sys.argv.index('--out') + 1]), sys.argv[1:sys.argv.index('--out')]\n"
        "for name in names:\n"
        "    time.sleep(60 if name == 'profiler' else 0)\n"
        "    (out / f'{name}.json').write_text(json.dumps({'commit': 'c', 'first': names[0]}))\n"
    )
    monkeypatch.setattr(visit, "WORKER", str(worker))
    assert (
        made(tmp_path).run(
            {name: Part(2.0 if name == "profiler" else 30.0) for name in ("plain", "profiler", "sampled")}
        )
        == 1
    )
    said = capsys.readouterr().out
    assert [line.split(",")[0].split(" after")[0] for line in said.splitlines()] == [
        "plain: done", "profiler: over its limit of 2 s", "sampled: done",
    ]  # fmt: skip
    assert json.loads((tmp_path / "sampled.json").read_text())["first"] == "sampled"


def test_parts_are_in_the_order_and_within_the_limits_of_a_visit() -> None:
    shared = [name for name, part in PARTS.items() if not part.command]
    assert shared == list(DEVICE_PARTS)
    assert list(PARTS) == ["doctor", *shared, "tests"]
    before = sum(part.seconds for name, part in PARTS.items() if name != "tests")
    assert before < visit.VISIT_S <= 720
    for part in PARTS.values():
        named = [word for word in part.command if word in ("kernels", "core", "runtime", "plugins")]
        assert all((visit.ROOT / word).is_dir() for word in named)


def test_outside_a_checkout_the_sources_say_what_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = visit.commit_of()

    def no_git(*_: object, **__: object) -> None:
        raise FileNotFoundError("git")

    monkeypatch.setattr(subprocess, "run", no_git)
    assert len(visit.commit_of()) == 40
    assert visit.commit_of() != inside
