import pytest
import torch
import torch.distributed as dist
from speccheck.models import few_ids

from specdec import LLM, ConfigError
from specdec_runtime.parallel.followers import timeout_s


def test_what_cannot_be_split_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="splits a model while it is loaded: give model as a path"):
        LLM(few_ids(16, flatness=1.0), tensor_parallel_size=2)
    with pytest.raises(ConfigError, match="deterministic=True needs fused layers"):
        LLM("zoo", tensor_parallel_size=2, deterministic=True)
    with pytest.raises(
        ConfigError, match="an argument cannot be sent to the processes of tensor_parallel_size=2"
    ):
        LLM("zoo", tensor_parallel_size=2, tokenizer=lambda: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ConfigError, match="needs a device for each rank, and 1 are visible"):
        LLM("zoo", tensor_parallel_size=2)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="starts its processes itself: run the script without torchrun"):
        LLM("zoo", tensor_parallel_size=2)
    monkeypatch.delenv("WORLD_SIZE")
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    with pytest.raises(ConfigError, match="this process has one already"):
        LLM("zoo", tensor_parallel_size=2)


def test_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert timeout_s() == 300.0
    monkeypatch.setenv("SPECDEC_COLLECTIVE_TIMEOUT", "2.5")
    assert timeout_s() == 2.5
    for wrong in ("0", "-1", "soon", "inf", "nan"):
        monkeypatch.setenv("SPECDEC_COLLECTIVE_TIMEOUT", wrong)
        with pytest.raises(ConfigError, match=r"SPECDEC_COLLECTIVE_TIMEOUT=.* a number of seconds above 0"):
            timeout_s()
