"""The documented flow, in a fresh environment: write a plugin, install it, check it, run its tests. The example likewise."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from packages import ROOT
from speccheck.environment import Environment

pytestmark = pytest.mark.wheels

EXAMPLE = ROOT / "examples/specdec-echo"
LEFTOVERS = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")


def install(environment: Environment, package: Path) -> None:
    environment.pip("install", "--no-index", "--no-deps", "--no-build-isolation", "-e", package)


def checked(environment: Environment, name: str, folder: Path) -> dict[str, Any]:
    done = environment.specdec("check", name, "--json", folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def assert_all_passed(done: subprocess.CompletedProcess[str], least: int) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    [summary] = [line for line in done.stdout.splitlines() if " passed" in line]
    assert "failed" not in summary
    assert "error" not in summary
    assert int(summary.split(" passed")[0].split()[-1]) >= least


@pytest.mark.timeout(1200)  # the first import of what was just installed compiles everything
def test_a_new_proposer_keeps_its_promises(environment: Environment, tmp_path: Path) -> None:
    done = environment.specdec("new", "my-idea", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "next: pip install -e my-idea && specdec check my_idea"
    install(environment, tmp_path / "my-idea")
    assert "my_idea" in environment.methods()

    report = checked(environment, "my_idea", tmp_path)
    assert report["is_conforming"]
    assert report["model"] == "zoo"
    assert {promise["verdict"] for promise in report["promises"]} == {"kept", "not applicable"}
    assert_all_passed(environment.pytest("tests", folder=tmp_path / "my-idea"), least=25)

    again = environment.specdec("new", "my-idea", "--directory", "my-idea", folder=tmp_path)
    assert again.returncode == 2
    assert "is taken: method 'my_idea' of specdec-my-idea 0.1.0 is installed" in again.stderr


def test_the_example_keeps_its_promises(environment: Environment, tmp_path: Path) -> None:
    example = shutil.copytree(EXAMPLE, tmp_path / "echo", ignore=LEFTOVERS)
    install(environment, example)
    assert "echo" in environment.methods()
    assert_all_passed(environment.pytest("tests", folder=example), least=26)


def test_a_new_sampler_keeps_its_promises(environment: Environment, tmp_path: Path) -> None:
    assert environment.specdec("new", "my-rule", "--kind", "sampler", folder=tmp_path).returncode == 0
    install(environment, tmp_path / "my-rule")
    report = checked(environment, "my_rule", tmp_path)
    assert (report["kind"], report["is_conforming"]) == ("sampler", True)
    assert_all_passed(environment.pytest("tests", folder=tmp_path / "my-rule"), least=15)


def test_a_new_backend_runs_the_passes(environment: Environment, tmp_path: Path) -> None:
    assert environment.specdec("new", "my-kernels", "--kind", "backend", folder=tmp_path).returncode == 0
    install(environment, tmp_path / "my-kernels")
    assert_all_passed(environment.pytest("tests", folder=tmp_path / "my-kernels"), least=1)
    environment.pip("uninstall", "--yes", "specdec-my-kernels")
