import pytest

from specdec import LLM, AsyncLLM, ConfigError
from specdec_runtime.parallel.rank import ProcessRank, process_rank, timeout_s


def test_a_plain_process_is_told_the_line() -> None:
    with pytest.raises(ConfigError, match=r"run `torchrun --nproc-per-node 2 your_script.py`$"):
        LLM("zoo", tensor_parallel_size=2)


def test_processes_and_ranks_are_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert process_rank(3) == ProcessRank(rank=1, size=3, local_rank=1)
    with pytest.raises(ConfigError, match="does not fit the 3 processes that torchrun has started"):
        process_rank(2)


def test_one_process_serves() -> None:
    with pytest.raises(ConfigError, match="tensor_parallel_size=2 runs under torchrun with `LLM` only"):
        AsyncLLM("zoo", tensor_parallel_size=2)


def test_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert timeout_s() == 300.0
    monkeypatch.setenv("SPECDEC_COLLECTIVE_TIMEOUT", "2.5")
    assert timeout_s() == 2.5
    for wrong in ("0", "-1", "soon", "inf", "nan"):
        monkeypatch.setenv("SPECDEC_COLLECTIVE_TIMEOUT", wrong)
        with pytest.raises(ConfigError, match=r"SPECDEC_COLLECTIVE_TIMEOUT=.* a number of seconds above 0"):
            timeout_s()
