"""The entry point of vLLM's plugins: which worker and which model runner are chosen."""

from __future__ import annotations

import logging
import sys
from types import ModuleType, SimpleNamespace

import pytest

from specdec import ConfigError
from specdec_vllm.plugin import register

NGRAM_GPU = {"method": "ngram_gpu", "num_speculative_tokens": 5, "prompt_lookup_max": 4}
CUSTOM = {"method": "custom_class", "model": "specdec_vllm.Proposer", "num_speculative_tokens": 5}


class EngineArgs(SimpleNamespace):
    """`vllm.engine.arg_utils.EngineArgs`."""

    def create_engine_config(self):
        return self.worker_cls, self.speculative_config


@pytest.fixture
def make(monkeypatch):
    """Return what makes vLLM's configuration of arguments."""
    modules = {
        name: ModuleType(name) for name in ("vllm.engine.arg_utils", "vllm.triton_utils", "vllm.platforms")
    }
    modules["vllm.engine.arg_utils"].EngineArgs = type("EngineArgs", (EngineArgs,), dict(vars(EngineArgs)))
    modules["vllm.triton_utils"].HAS_TRITON = True
    modules["vllm.platforms"].current_platform = platform = SimpleNamespace(
        is_cpu=lambda: True, is_cuda_alike=lambda: False, device_name="tpu"
    )
    sys.modules["vllm"].envs = envs = SimpleNamespace(VLLM_USE_V2_MODEL_RUNNER=None)  # type: ignore[attr-defined]
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    register()
    register()

    def made(theirs=NGRAM_GPU, ours=None, worker="auto", stages=1, **additional):
        additional |= {} if ours is None else {"specdec": ours}
        return (
            modules["vllm.engine.arg_utils"]
            .EngineArgs(
                speculative_config=theirs,
                additional_config=additional,
                worker_cls=worker,
                pipeline_parallel_size=stages,
            )
            .create_engine_config()
        )

    made.envs, made.platform, made.triton = envs, platform, modules["vllm.triton_utils"]
    return made


def test_the_worker_is_ours_where_our_configuration_is(make) -> None:
    assert make(ours={"method": "ngram"}) == ("specdec_vllm.CPUWorker", NGRAM_GPU)
    assert make(CUSTOM, {"method": "ngram"}) == ("specdec_vllm.CPUWorker", CUSTOM)
    assert make(other=1) == ("auto", NGRAM_GPU)
    assert make(None) == ("auto", None)
    make.platform.is_cpu, make.platform.is_cuda_alike = lambda: False, lambda: True
    assert make(ours={"method": "ngram"})[0] == "specdec_vllm.GPUWorker"
    make.platform.is_cuda_alike = lambda: False
    with pytest.raises(ConfigError, match="no worker for tpu"):
        make(ours={"method": "ngram"})


WHY = {
    "variable": (lambda m: setattr(m.envs, "VLLM_USE_V2_MODEL_RUNNER", False), {}, "is 0"),
    "no Triton": (lambda m: setattr(m.triton, "HAS_TRITON", False), {}, "V2 needs Triton"),
    "adaptive": (
        lambda m: None,
        {"ours": {"method": "ngram", "adaptive": True}},
        "'adaptive' shortens drafts",
    ),
    "stages": (lambda m: None, {"stages": 2}, "stages of a pipeline"),
}


@pytest.mark.parametrize("what", WHY)
def test_v1_is_taken_with_a_line_that_says_why(make, caplog, what) -> None:
    change, keys, why = WHY[what]
    change(make)
    with caplog.at_level(logging.WARNING, "specdec"):
        assert make(**{"ours": {"method": "ngram"}} | keys) == ("specdec_vllm.CPUWorker", CUSTOM)
    assert len(caplog.records) == 1
    assert why in caplog.text


def test_what_our_configuration_cannot_go_with_is_refused(make) -> None:
    with pytest.raises(ConfigError, match="does not go with vLLM's method 'ngram'"):
        make({"method": "ngram"}, {"method": "ngram"})
    with pytest.raises(ConfigError, match="does not go with vLLM's method None"):
        make(None, {"method": "ngram"})
    with pytest.raises(ConfigError, match="leave out --worker-cls"):
        make(ours={"method": "ngram"}, worker="else.Worker")


def test_processes_without_arguments_are_left_alone(monkeypatch) -> None:
    monkeypatch.delitem(sys.modules, "vllm.engine.arg_utils", raising=False)
    register()


def test_our_lines_are_logged_where_vllm_logs(monkeypatch) -> None:
    theirs, ours = logging.getLogger("vllm"), logging.getLogger("specdec")
    before = ours.level, ours.propagate
    register()
    assert not ours.handlers
    monkeypatch.setattr(theirs, "handlers", [logging.NullHandler()])
    monkeypatch.setattr(theirs, "level", logging.ERROR)
    monkeypatch.setattr(theirs, "propagate", False)
    monkeypatch.setattr(ours, "handlers", [])
    try:
        register()
        assert (ours.handlers, ours.level, ours.propagate) == (theirs.handlers, logging.ERROR, False)
    finally:
        ours.propagate = before[1]
        ours.setLevel(before[0])
