"""All parts of the device benchmark on a tiny model, and its output files."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import device_bench
import pytest
from device.plan import PLANS
from device.plot import plot

pytestmark = pytest.mark.slow  # the whole benchmark

TINY = PLANS["tiny"]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("device") / "tiny.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["device_bench.py", "tiny", "--json", str(file)])
        assert device_bench.main() == 0
    return file


@pytest.fixture
def result(written: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(written.read_text(encoding="utf-8"))
    return loaded


def test_it_says_where_it_comes_from(result: dict[str, Any]) -> None:
    environment = result["environment"]
    assert {"date", "command", "commit", "cpu", "load_average", "load_average_after", "wall_s"} <= set(
        environment
    )
    assert environment["device"] == {"type": "cpu"}
    assert {"specdec-core", "specdec-kernels", "torch", "transformers"} <= set(environment["versions"])
    assert result["plan"]["name"] == "tiny"
    assert result["is_rehearsal"] is True
    assert result["bandwidth"] is None


def test_every_batch_size_and_k_is_measured(result: dict[str, Any]) -> None:
    points = result["engine"]["points"]
    assert [(p["batch_size"], p["k"]) for p in points] == [(1, 0), (1, 2), (2, 0), (2, 2)]
    assert result["engine"]["skipped"] == []
    for point in points:
        split = point["split"]
        assert set(split) == {"propose_ms", "score_ms", "verify_ms", "other_ms"}
        assert min(*split.values(), point["step_ms"], point["forward_ms"], point["tokens_per_s"]) > 0
        assert point["overhead_ms"] == pytest.approx(
            sum(split.values()) - split["propose_ms"] - point["forward_ms"]
        )
        assert point["bound_ms"] is None
        assert point["share_of_bandwidth"] is None
        assert point["num_rows"] == point["batch_size"] * (1 + point["k"])
        is_plain = point["k"] == 0
        assert (point["mean_acceptance_length"] == 1.0) is is_plain
        assert point["mean_acceptance_length"] <= 1 + point["k"]
    weights = 512 * 64 + 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96 + 2 * 64) + 64
    keys_and_values = 2 * 2 * 2 * 16 * 4
    context = (points[0]["num_bytes"] - 4 * weights) / keys_and_values
    assert TINY.engine.prompt_tokens < context < TINY.engine.prompt_tokens + 3 * TINY.engine.num_steps


def test_both_engines_said_the_same(result: dict[str, Any]) -> None:
    (case,) = result["assisted"]
    assert [(row["ours"], row["peer"]) for row in case["rows"]] == [
        ("specdec draft_model k=2", "transformers draft_model k=2"),
        ("specdec none", "transformers none"),
    ]
    for row in case["rows"]:
        assert row["is_gate_required"]
        assert row["is_gate_passed"]
        assert row["num_identical"] == row["num_prompts"] == 1
        assert row["ratio"]["median"] > 0
    counters = case["variants"]["specdec draft_model k=2"]["counters"]
    assert 0 < counters["num_accepted_tokens"] <= counters["num_draft_tokens"]


def test_every_kernel_is_equal_to_plain_torch(result: dict[str, Any]) -> None:
    kernels = result["kernels"]
    assert kernels["skipped"] == []
    assert kernels["sizes"]["dtype"] == "float32"
    assert [row["op"] for row in kernels["rows"] if not row["is_equal"]] == []
    assert {row["backend"] for row in kernels["rows"]} == {"reference"}
    assert all(
        row["bound_ms"] is None and row["op_ms"] > 0 and row["torch_ms"] > 0 for row in kernels["rows"]
    )


def test_goals_are_evaluated_from_the_numbers(result: dict[str, Any]) -> None:
    goals = result["goals"]
    assert [goal["is_met"] is None for goal in goals] == [True, False, False, False, False]
    overheads = [p["overhead_ms"] for p in result["engine"]["points"] if p["batch_size"] == 1]
    assert goals[1]["value"] == max(overheads)
    assert goals[1]["is_met"] is (max(overheads) <= goals[1]["limit"])
    assert goals[4]["value"] == result["assisted"][0]["rows"][0]["ratio"]["median"]


def test_the_picture_has_a_bar_for_every_part(written: Path, result: dict[str, Any]) -> None:
    picture = ElementTree.fromstring(written.with_suffix(".svg").read_text(encoding="utf-8"))
    paths = list(picture.iter("{http://www.w3.org/2000/svg}path"))
    num_points = len(result["engine"]["points"])
    for colour in ("#4c9f70", "#4472c4", "#e08e45", "#b3b3b3"):  # of the parts, in bars and legend
        assert sum(colour in path.get("style", "") for path in paths) == num_points + 1
    texts = "".join(picture.itertext())
    assert "batch 2: ms per step" in texts
    assert "(rehearsal)" in texts
    assert "bandwidth bound" not in texts


def test_a_picture_with_bounds(result: dict[str, Any]) -> None:
    points = [
        {**point, "batch_size": size, "bound_ms": 0.5 * point["step_ms"]}
        for size in (1, 2, 4, 8, 16, 32, 64)
        for point in result["engine"]["points"][:2]
    ]
    shown = {**result, "engine": {"points": points}, "bandwidth": {"tb_per_s": 4.8}, "is_rehearsal": False}
    shown["environment"] = {**result["environment"], "device": {"name": "A <GPU>"}}
    picture = ElementTree.fromstring(plot(shown))
    texts = "".join(picture.itertext())
    assert "bandwidth bound" in texts
    assert "A <GPU>" in texts
    assert "batch 64: ms per step" in texts


def test_without_a_gpu_the_gpu_plan_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(device_bench.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["device_bench.py", "gpu"])
    assert device_bench.main() == 2
    assert "sees no GPU" in capsys.readouterr().err
