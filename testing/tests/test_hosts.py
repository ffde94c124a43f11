"""The hosts' suite: a right engine keeps every promise, each mutant breaks its own."""

from __future__ import annotations

import pytest
from kit_subjects.hosts import MUTANTS, Right

from specdec import ConfigError, PluginError
from specdec_testing import HostConformance
from specdec_testing.hosts import find_host, target_for
from specdec_testing.runner import PromiseVerdict, run_suite


class TestRight(HostConformance):
    host = Right
    model = "tiny"


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_breaks_its_promise(name: str) -> None:
    host, test = MUTANTS[name]
    suite = type("TestMutant", (HostConformance,), {"host": host, "model": "tiny"})
    [report] = run_suite(suite, only=[test])
    assert report.verdict is PromiseVerdict.BROKEN
    assert "raised" not in report.reason
    assert report.fix


def test_every_promise_has_a_mutant() -> None:
    tests = {name for name in dir(HostConformance) if name.startswith("test_")}
    assert tests - {"test_nothing_of_the_kit_is_replaced"} == {test for _, test in MUTANTS.values()}


def test_an_engine_without_an_adapter_is_refused() -> None:
    assert find_host("transformers").__name__ == "CheckedEngine"
    with pytest.raises(PluginError, match=r"no adapter for 'mlx' is installed, only for .*transformers"):
        find_host("mlx")


def test_an_engine_that_reads_gguf_files_gets_the_file() -> None:
    reads = type("Reads", (Right,), {"reads_gguf": True})
    assert (target_for(reads, "/none.gguf"), target_for(reads, "folder")) == ("/none.gguf", "folder")
    with pytest.raises(ConfigError, match="there is no file"):
        target_for(Right, "/none.gguf")
