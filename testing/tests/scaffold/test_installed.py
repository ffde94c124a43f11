"""The documented flow, in a fresh environment: write a plugin of each kind, install its wheel, check it, run its tests.

The packages are a third party's: nothing of this repository's plugins and backends is installed. The example likewise.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import wheels
from packages import ROOT
from speccheck.environment import Environment

pytestmark = [
    pytest.mark.wheels,
    pytest.mark.xdist_group("installed"),  # one environment for all of them
    pytest.mark.timeout(1200),  # the first import of what was just installed compiles everything
]

EXAMPLE, HEAD_EXAMPLE = ROOT / "examples/specdec-echo", ROOT / "examples/specdec-glance"
PLUGINS = {
    "proposer": ("my-idea", "specdec.proposers", 25),
    "sampler": ("my-rule", "specdec.samplers", 15),
    "scorer": ("my-passes", "specdec.scorers", 10),
    "backend": ("my-kernels", "specdec.backends", 12),
}
"""For each kind a name, its entry-point group, and how many of the package's tests pass at least."""
GENERATE = """
import json, sys
from specdec import LLM, SamplingParams
params = SamplingParams(temperature=0.8, seed=5, max_tokens=48, ignore_eos=True)
llm = LLM("zoo", dtype="float32", max_model_len=256, {settings})
[output] = llm.generate(["    self.a = a\\n    self.b = b\\n    self.c = c\\n"], params)
metrics = {{metric.name: getattr(metric, "value", None) for metric in llm.get_metrics()}}
print(json.dumps([output.outputs[0].token_ids, output.metrics.num_accepted_tokens, metrics]))
"""
ALL = (
    "scorer='my_passes', speculative_config={'method': 'my_idea', 'num_speculative_tokens': 4, "
    "'rejection_sample_method': 'my_rule'}"
)


@pytest.fixture(scope="module")
def folder(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one written package of each kind, whose wheels are installed."""
    made = tmp_path_factory.mktemp("written")
    for kind, (name, _, _) in PLUGINS.items():
        done = environment.specdec("new", name, "--kind", kind, folder=made)
        assert done.returncode == 0, done.stderr
        following = f"next: pip install -e {name} && specdec check {name.replace('-', '_')}"
        assert done.stdout.splitlines()[-1] == following
    environment.install(*(wheels.build(made / name, made / "wheels") for name, _, _ in PLUGINS.values()))
    environment.pip("check")
    return made


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


def generated(environment: Environment, settings: str) -> tuple[list[int], int, dict[str, Any]]:
    tokens, accepted, metrics = json.loads(environment.run(GENERATE.format(settings=settings)))
    return tokens, accepted, metrics


@pytest.mark.usefixtures("folder")
def test_third_parties_are_found(environment: Environment) -> None:
    done = environment.specdec("plugins", "--check", "--json")
    assert done.returncode == 0, done.stderr
    found = {(row["group"], row["name"], row["distribution"]) for row in json.loads(done.stdout)}
    assert {
        (group, name.replace("-", "_"), f"specdec-{name}") for name, group, _ in PLUGINS.values()
    } <= found
    assert "my_kernels  forms of models" in environment.specdec("doctor").stdout


@pytest.mark.usefixtures("folder")
def test_third_parties_run_together_and_the_text_stays(environment: Environment) -> None:
    plain, _, _ = generated(environment, "")
    tokens, accepted, metrics = generated(environment, ALL)
    assert tokens == plain
    assert accepted > 0
    assert 0 < metrics["specdec:my_kernels_passes"] < 48


@pytest.mark.parametrize("kind", PLUGINS)
def test_a_third_party_keeps_its_promises(kind: str, environment: Environment, folder: Path) -> None:
    name, _, least = PLUGINS[kind]
    report = checked(environment, name.replace("-", "_"), folder)
    assert report["is_conforming"]
    assert report["kind"] == {"proposer": "method"}.get(kind, kind)
    assert {promise["verdict"] for promise in report["promises"]} <= {"kept", "not applicable"}
    assert_all_passed(environment.pytest("tests", folder=folder / name), least)


def test_a_name_that_is_installed_is_taken(environment: Environment, folder: Path) -> None:
    again = environment.specdec("new", "my-idea", "--directory", "my-idea", folder=folder)
    assert again.returncode == 2
    assert "is taken: method 'my_idea' of specdec-my-idea 0.1.0 is installed" in again.stderr


def test_the_example_keeps_its_promises(environment: Environment, tmp_path: Path) -> None:
    environment.install(wheels.build(EXAMPLE, tmp_path / "wheels"))
    assert "echo" in environment.methods()
    example = shutil.copytree(EXAMPLE / "tests", tmp_path / "tests")
    assert_all_passed(environment.pytest("tests", folder=example.parent), least=26)


@pytest.mark.xdist_group("installed for heads")
def test_the_example_of_a_head_keeps_its_promises(environment: Environment, tmp_path: Path) -> None:
    environment = environment
    environment.install(wheels.build(HEAD_EXAMPLE, tmp_path / "wheels"))
    assert "glance" in environment.methods()
    example = shutil.copytree(HEAD_EXAMPLE / "tests", tmp_path / "tests")
    assert_all_passed(environment.pytest("tests", folder=example.parent), least=30)


@pytest.mark.usefixtures("folder")
def test_a_backend_comes_and_goes(environment: Environment) -> None:
    environment.pip("uninstall", "--yes", "specdec-my-kernels")
    assert "my_kernels" not in environment.specdec("doctor").stdout
    _, accepted, metrics = generated(environment, ALL)
    assert accepted > 0
    assert "specdec:my_kernels_passes" not in metrics
