"""The comparison of methods on a device, run on the CPU; and the parts of `make gpu`."""

from __future__ import annotations

import json
from importlib.metadata import Distribution
from pathlib import Path

import device_methods
import gpu
import pytest
from device.method_plan import CASES, CONFIGURATIONS
from device.method_run import _compared

pytestmark = pytest.mark.slow


def test_it_compares_texts_with_plain_decoding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "found.json"
    arguments = [
        "--device",
        "cpu",
        "--num-prompts",
        "2",
        "--max-tokens",
        "8",
        "--methods",
        "ngram",
        "--json",
        str(file),
    ]
    assert device_methods.main(arguments) == 0
    plain, ngram = json.loads(file.read_text())["results"]
    assert plain["cases"]["greedy alone"]["num_same"] == 2  # of transformers
    assert [ngram["cases"][name]["num_same"] for name in CASES] == [2] * len(CASES)
    assert "greedy" in capsys.readouterr().out


def test_a_text_that_differs_is_an_error() -> None:
    model = Path(device_methods.__file__)  # not read: only drawn texts differ
    found = _compared([[1, 2]], [[1, 3]], [[0]], CASES["sampled"], model)
    assert (found["num_same"], found["are_ties"]) == (0, False)
    result = {"method": "ngram", "cases": {"sampled": found}}
    assert device_methods._is_wrong(result, is_exact=True)
    assert not device_methods._is_wrong(result, is_exact=False)
    assert device_methods._is_wrong({"method": "ngram", "error": "exit status 1"}, is_exact=False)


def test_a_method_that_fails_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--device", "nowhere", "--methods", "ngram", "--json", str(tmp_path / "found.json")]
    assert device_methods.main(arguments) == 1
    assert "nowhere" in capsys.readouterr().out


@pytest.mark.parametrize("part", gpu.PARTS.values(), ids=gpu.PARTS)
def test_parts_run_files_that_are_there(part: gpu.Job) -> None:
    first = part.command[0]
    assert first == "-m" or (gpu.ROOT / first).is_file()
    assert part.minutes <= 9


def test_metadata_has_the_entry_points(tmp_path: Path) -> None:
    for source in gpu.sources():
        gpu.write_metadata(source, tmp_path)
    found = {
        point.name for made in Distribution.discover(path=[str(tmp_path)]) for point in made.entry_points
    }
    assert {config["method"] for config in CONFIGURATIONS["zoo"].values()} <= found


def test_what_has_ended_well_is_not_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = gpu.Job(("-c", "print('run')"))
    assert gpu._run("one", part, tmp_path, {}) == 0
    assert (tmp_path / "one.log").read_text() == "run\n"
    assert gpu._run("one", gpu.Job(("-c", "raise SystemExit(3)")), tmp_path, {}) == 0
    assert gpu._run("two", gpu.Job(("-c", "raise SystemExit(3)")), tmp_path, {}) == 1
    assert "exit status 3" in capsys.readouterr().out
