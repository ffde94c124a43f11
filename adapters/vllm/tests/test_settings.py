"""What a user may say, and what is said back."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest
from stub_engine import StubParams

import specdec_vllm
from specdec import ConfigError
from specdec_vllm import params, versions
from specdec_vllm.drafter import Proposer
from specdec_vllm.params import noise_seed, params_of
from specdec_vllm.settings import read_settings
from specdec_vllm.versions import check_version

THEIRS = SimpleNamespace(method="custom_class", model="specdec_vllm.Proposer", num_speculative_tokens=5)


def config(theirs=THEIRS, **additional) -> SimpleNamespace:
    return SimpleNamespace(speculative_config=theirs, additional_config=additional)


def test_settings_are_read_from_both_places() -> None:
    read = read_settings(config(specdec={"method": "ngram"}, specdec_kv_cache_memory_bytes=7, other=1))
    assert read.speculative_config == {"method": "ngram", "num_speculative_tokens": 5}
    assert (read.num_speculative_tokens, read.kv_cache_memory_bytes) == (5, 7)
    assert read_settings(config(specdec={"method": "ngram", "num_speculative_tokens": 2})).speculative_config == {
        "method": "ngram", "num_speculative_tokens": 2,
    }  # fmt: skip
    assert read_settings(config(None)) is None
    assert read_settings(SimpleNamespace(speculative_config=None, additional_config=None)) is None


WRONG = {
    "only ours": (config(None, specdec={"method": "ngram"}), "needs vLLM's speculative_config"),
    "only theirs": (config(), "must be specdec's speculative_config"),
    "text": (config(specdec="ngram"), "must be specdec's speculative_config"),
    "their method": (
        config(SimpleNamespace(method="ngram", model="ngram", num_speculative_tokens=5), specdec={}),
        "not method 'ngram'",
    ),
    "misspelt": (
        config(specdec={}, specdec_kv_cache_memory=7),
        "has no 'specdec_kv_cache_memory': use 'specdec' or 'specdec_kv_cache_memory_bytes'",
    ),
    "more": (config(specdec={"num_speculative_tokens": 9}), "num_speculative_tokens=9 is more than the 5"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_settings_name_the_place(what) -> None:
    given, message = WRONG[what]
    with pytest.raises(ConfigError, match=message):
        read_settings(given)


def test_versions_are_checked(monkeypatch, caplog) -> None:
    monkeypatch.delenv(versions.VARIABLE, raising=False)
    check_version("0.32.0+cpu")
    assert caplog.records == []
    with caplog.at_level(logging.WARNING, "specdec"):
        check_version("0.33.0")
    assert "not with 0.33.0" in caplog.text
    with pytest.raises(
        ConfigError, match=r"internals of vLLM 0\.32\.0 and this is 0\.40\.1: .*SPECDEC_VLLM_ANY_VERSION=1"
    ):
        check_version("0.40.1")
    monkeypatch.setenv(versions.VARIABLE, "1")
    check_version("0.40.1")


def test_the_class_in_their_place_asks_for_our_worker() -> None:
    def of(worker) -> SimpleNamespace:
        return SimpleNamespace(parallel_config=SimpleNamespace(worker_cls=worker))

    Proposer(of("specdec_vllm.CPUWorker")).load_model(None)
    for worker in ("vllm.v1.worker.cpu_worker.CPUWorker", SimpleNamespace):
        with pytest.raises(ConfigError, match="which vLLM's plugin 'specdec' chooses"):
            Proposer(of(worker))
    with pytest.raises(ConfigError, match="not bound"):
        Proposer(of("specdec_vllm.CPUWorker")).propose([], None, None)


def test_sampling_parameters_reach_proposers() -> None:
    theirs = StubParams(temperature=0.7, seed=3, top_p=0.9, top_k=-1, max_tokens=9, min_tokens=20)
    told = params_of(theirs, is_noise_known=True)
    assert (told.temperature, told.top_p, told.top_k, told.max_tokens, told.min_tokens) == (0.7, 0.9, 0, 9, 9)
    assert params_of(theirs, is_noise_known=False).temperature == 0.0
    assert params_of(StubParams(temperature=1e-7), is_noise_known=True).is_greedy
    assert params_of(StubParams(), is_noise_known=True).cap_speculation(5) == 5


@pytest.mark.parametrize("value", [-1, True, "3", 1.5])
def test_a_wrong_limit_is_said_and_ignored(value, caplog) -> None:
    params._said.clear()
    theirs = StubParams(extra_args={params.LIMIT_KEY: value})
    with caplog.at_level(logging.WARNING, "specdec"):
        assert params_of(theirs, is_noise_known=True).cap_speculation(5) == 5
        params_of(theirs, is_noise_known=True)
    assert len(caplog.records) == 1
    assert params.LIMIT_KEY in caplog.text


def test_parameters_that_we_refuse_end_no_engine(caplog) -> None:
    params._said.clear()
    with caplog.at_level(logging.WARNING, "specdec"):
        told = params_of(StubParams(temperature=0.5, top_p=0.0), is_noise_known=True)
    assert told.temperature == 0.5
    assert "top_p" in caplog.text


def test_noise_seeds_differ_and_stay() -> None:
    seeds = {noise_seed(engine, name) for engine in (0, 1, None) for name in ("a", "b")}
    assert len(seeds) == 6
    assert noise_seed(0, "a") in seeds
    assert all(-(2**63) <= seed < 2**63 for seed in seeds)


def test_unknown_names_are_missing() -> None:
    assert specdec_vllm.Proposer is Proposer
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = specdec_vllm.Nothing
