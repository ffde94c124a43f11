"""Compiled code is kept on disk if that is possible, and no folder or file on disk ends a run."""

import importlib.util
import os
import pwd
import re
import resource
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import pytest
import torch
from numba.core import event

from specdec import ConfigError
from specdec.folders import cache_folder, compiled_folder
from specdec.interfaces import Compiled
from specdec_kernels.cpu.backend import CpuBackend
from specdec_kernels.cpu.compiled import cache, still_compiling, target
from specdec_kernels.cpu.compiled.target import TARGETS

ROOT = Path(__file__).parents[3]
SOURCE = """
from specdec_kernels.cpu.compiled.jit import njit

@njit(cache=True)
def twice(number):
    return {factor} * number
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, caplog):
    if (earlier := still_compiling._thread) is not None:
        earlier.join(60.0)  # what tests before these compiled is not told into theirs
        assert not earlier.is_alive()
    caplog.set_level("WARNING", "specdec.compiled")  # the root conftest.py turns it down
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "compiled"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # source.py is written again within one second
    monkeypatch.setattr(cache, "_warned", set())
    monkeypatch.setattr(cache, "_last_compiled", -cache.inf)
    monkeypatch.setattr(still_compiling, "LINE_EVERY_S", 600.0)
    monkeypatch.setattr(still_compiling, "_thread", None)
    monkeypatch.setattr(cache, "monotonic", lambda: 100.0)  # a busy machine may take long over one of them
    cache._digest_of.cache_clear()
    return tmp_path / "compiled"


@pytest.fixture
def twice(tmp_path):
    """Makes the function as a new process would: nothing of it is in memory."""

    def make(factor: int = 2):
        file = tmp_path / "source.py"
        file.write_text(SOURCE.format(factor=factor))
        spec = importlib.util.spec_from_file_location("source", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.twice

    return make


@contextmanager
def full_disk():
    """No file can grow, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def hits(function) -> int:
    return sum(function.stats.cache_hits.values())


def test_code_is_kept_for_each_type_and_loaded(twice, folder):
    first = twice()
    assert (first(3), first(1.5), hits(first)) == (6, 3.0, 0)
    second = twice()
    assert (second(4), second(0.5), hits(second)) == (8, 1.0, 2)
    assert len(list(folder.glob("*/source.twice-*.nbc"))) == 2
    assert Path(second.stats.cache_path).parent == folder


def test_other_sources_are_compiled_again_and_replace_the_old_code(twice, folder, tmp_path, caplog):
    twice()(3)
    (tmp_path / "called.py").write_text("one = 1\n")  # what functions of the folder may call
    cache._digest_of.cache_clear()
    again = twice()
    assert (again(3), hits(again)) == (6, 0)
    cache._digest_of.cache_clear()
    other = twice(factor=5)
    assert (other(3), hits(other)) == (15, 0)
    assert len(list(folder.glob("*/*"))) == 1
    assert "damaged" not in caplog.text


def test_damaged_code_is_compiled_again(twice, folder, caplog):
    twice()(3)
    (file,) = folder.glob("*/*.nbc")
    whole = file.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    for content in (
        b"",
        whole[:10],
        whole[:40],
        whole[:70],
        whole[:-1],
        flipped,
        b"\xff" * 5000,
        whole + b"\0",
    ):
        file.write_bytes(content)
        function = twice()
        assert (function(3), hits(function)) == (6, 0), content[:80]
        assert file.read_bytes()[:32] == whole[:32]
        healed = twice()
        assert (healed(3), hits(healed)) == (6, 1)
    assert (
        caplog.text.count(f"compiled code in {file} is damaged (its checksum differs): compiled again") == 1
    )


@pytest.fixture
def ahead(twice, folder, tmp_path, monkeypatch):
    """The file of `twice` of integers, compiled ahead; nothing else is kept."""
    monkeypatch.setattr(cache, "TARGET", TARGETS[-1])
    monkeypatch.setattr(cache, "_AHEAD", tmp_path / "ahead")
    twice()(3)
    assert cache.keep_ahead(TARGETS[-1], folder) == 1
    for file in folder.glob("*/*.nbc"):
        file.unlink()
    (file,) = (tmp_path / "ahead" / TARGETS[-1].name).iterdir()
    return file


def test_code_compiled_ahead_is_taken_and_not_kept_again(ahead, twice, folder, caplog):
    caplog.clear()
    function = twice()
    assert (function(4), hits(function)) == (8, 1)
    assert not list(folder.glob("*/*.nbc"))
    assert not caplog.records
    assert (function(1.5), hits(function)) == (3.0, 1)


def test_what_is_compiled_is_counted_and_told(ahead, twice, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "_CALLED", (tmp_path,))
    cache._digest_of.cache_clear()
    assert cache.counts() == (0, 0), "the sources are others now"
    twice()(3), twice()(1.5)
    assert cache.counts() == (0, 2)
    cache.keep_ahead(TARGETS[-1], folder)
    assert cache.counts() == (2, 2)
    whom = "exactly this processor" if target.TARGET is None else target.TARGET.name
    assert CpuBackend().compiled(torch.device("cpu")) == Compiled(whom, 2, 2)
    (tmp_path / "called.py").write_text("one = 1\n")
    cache._digest_of.cache_clear()
    assert cache.counts() == (0, 0)


def test_code_compiled_ahead_for_others_is_compiled(ahead, twice, folder, monkeypatch):
    other = twice(factor=5)
    cache._digest_of.cache_clear()
    assert (other(3), hits(other)) == (15, 0)
    next(folder.glob("*/*.nbc")).unlink()
    cache._digest_of.cache_clear()
    ahead.write_bytes(ahead.read_bytes()[:-9])
    function = twice()
    assert (function(3), hits(function)) == (6, 0)
    next(folder.glob("*/*.nbc")).unlink()
    monkeypatch.setattr(cache, "TARGET", None)
    function = twice()
    assert (function(3), hits(function)) == (6, 0)


def test_a_damaged_folder_is_one_warning(twice, folder, caplog):
    twice()(3), twice()(1.5)
    files = list(folder.glob("*/*.nbc"))
    for file in files:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    caplog.clear()
    cache._warned.clear()
    function = twice()
    assert (function(3), function(1.5), hits(function)) == (6, 3.0, 0)
    (told,) = (record.getMessage() for record in caplog.records)
    assert told in [
        f"compiled code in {file} is damaged (its checksum differs): compiled again, which may take a minute or two"
        for file in files
    ]


def test_a_sound_file_that_numba_cannot_load_is_compiled_again(twice, folder, caplog):
    twice()(3)
    (file,) = folder.glob("*/*.nbc")
    data = b"cos\nno_such_name\n."
    file.write_bytes(file.read_bytes()[:32] + cache.hashlib.sha256(data).digest() + data)
    assert twice()(3) == 6
    assert "is damaged (" in caplog.text


def test_a_folder_that_cannot_be_made(twice, monkeypatch, caplog):
    for made, reason in (("/dev/null/sub", "Not a directory"), ("/proc/sub", "No such file or directory")):
        monkeypatch.setenv("NUMBA_CACHE_DIR", made)
        cache._warned.clear()
        caplog.clear()
        function = twice()
        assert (function(3), function(1.5)) == (6, 3.0)
        assert [record.getMessage() for record in caplog.records] == [
            f"compiled code cannot be kept in {made} ({reason}): make room there, or set NUMBA_CACHE_DIR to another folder; "
            "until then every start compiles, which may take a minute or two"
        ]


def test_a_disk_that_is_full_at_the_start(twice, folder, caplog):
    function = twice()
    with full_disk():
        assert (function(3), function(1.5)) == (6, 3.0)
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        f"compiled code cannot be kept in {folder} (File too large)"
    ]
    assert not list(folder.glob("*/*"))


def test_a_disk_that_fills_up_later(twice, folder, caplog):
    function = twice()
    assert function(3) == 6
    with full_disk():
        assert (function(1.5), function(2j)) == (3.0, 4j)
    assert [re.split("[:,]", record.getMessage())[0] for record in caplog.records] == [
        "compiling for this machine",
        f"compiled code cannot be kept in {folder} (File too large)",
    ]
    assert [file.suffix for file in folder.glob("*/*")] == [".nbc"]


def test_a_folder_may_become_read_only_or_vanish(twice, folder, monkeypatch):
    function = twice()
    assert function(3) == 6
    (file,) = folder.glob("*/*.nbc")
    file.unlink()
    file.mkdir()  # a file that can be neither read nor replaced, for root too
    again = twice()
    assert (again(3), hits(again)) == (6, 0)


def test_a_user_without_a_home(monkeypatch):
    """Containers run as user ids that no file knows, often without HOME."""

    def unknown(user: object) -> None:
        raise KeyError(user)

    for name in ("HOME", "XDG_CACHE_HOME", "SPECDEC_CACHE", "NUMBA_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert cache_folder() == Path("/.cache/specdec")
    assert compiled_folder() == Path("/.cache/specdec/compiled")
    monkeypatch.setenv("SPECDEC_CACHE", "~nobody-of-this-name/cache")
    with pytest.raises(ConfigError, match="SPECDEC_CACHE='~nobody-of-this-name/cache': there is no user"):
        cache_folder()


def test_numbas_own_cache_is_used_nowhere():
    sources = [
        file for package in ("kernels", "plugins", "train") for file in (ROOT / package).rglob("src/**/*.py")
    ]
    cached = [file for file in sources if re.search(r"^@\w*jit\(.*cache=True", file.read_text(), re.M)]
    assert len(cached) > 10
    assert [
        file for file in cached if "from specdec_kernels.cpu.compiled.jit import njit" not in file.read_text()
    ] == []


def child(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value for name, value in os.environ.items() if not name.endswith(("_CACHE", "_CACHE_DIR"))
    }
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment | variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


def test_a_process_with_a_home_that_is_no_folder_says_so_once():
    code = (
        "import numpy as np; from specdec_kernels.cpu.rows.logits import best_ids; out = np.empty(1, np.int64)\n"
        "for dtype in (np.float32, np.float64): best_ids(np.array([[1, 3, 2]], dtype), out); print(out[0])"
    )
    # A processor that nothing is compiled ahead for.
    done = child(code, HOME="/dev/null", NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="")
    assert done.stdout == "1\n1\n"
    assert done.stderr == (
        "compiled code cannot be kept in /dev/null/.cache/specdec/compiled (Not a directory): make room there, or set "
        "NUMBA_CACHE_DIR to another folder; until then every start compiles, which may take a minute or two\n"
    )


LATE = """
import resource
from transformers import GPT2Config, GPT2LMHeadModel
from specdec import LLM, SamplingParams
from specdec_kernels.cpu.compiled.cache import CodeCache
asked, load = [], CodeCache.load_overload
CodeCache.load_overload = lambda cache, *given: (asked.append(cache._name), load(cache, *given))[1]
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
config = GPT2Config(vocab_size=64, n_positions=128, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
foreign = GPT2LMHeadModel(config).eval()
for model, method in ((foreign, None), ("zoo", None), ("zoo", "eagle"), ("zoo", "eagle3")):
    config = method and {"method": method, "num_speculative_tokens": 3, "model": "zoo"}
    llm = LLM(model, dtype="float32", speculative_config=config, max_model_len=128)
    num_before = len(asked)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, most))
    for temperature in (0.0, 0.8):
        params = SamplingParams(temperature=temperature, max_tokens=6, ignore_eos=True, top_k=9)
        for lengths in ([8], [100, 20, 1]):
            llm.generate([{"prompt_token_ids": [i % 64 for i in range(length)]} for length in lengths], params)
    assert asked[num_before:] == [], (method, asked[num_before:])
    llm.shutdown()
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
assert "specdec_kernels.cpu.verification.walk.walk" in asked
"""


@pytest.mark.slow
def test_engines_compile_nothing_after_they_are_ready(monkeypatch):
    """And they serve on a disk that is full by then, without a home."""
    monkeypatch.undo()
    done = child(LATE, HOME="/dev/null", NUMBA_CACHE_DIR=str(compiled_folder()))
    assert "cannot be kept" not in done.stderr


def test_each_long_compilation_is_told(twice, caplog, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(cache, "monotonic", lambda: now[0])
    function = twice()
    function(3), function(1.5)
    now[0] += 60.0
    function(2j)
    assert [record.getMessage().partition(",")[0] for record in caplog.records] == [
        "compiling for this machine"
    ] * 2


def test_a_long_compilation_says_that_it_goes_on(twice, caplog, monkeypatch):
    monkeypatch.setattr(still_compiling, "LINE_EVERY_S", 0.05)
    with event.trigger_event("numba:compile"):  # one that has not ended
        twice()(3)
        thread = still_compiling._thread
        deadline = monotonic() + 60.0
        while len(caplog.records) < 3 and monotonic() < deadline:
            sleep(0.01)
    thread.join(60.0)
    assert not thread.is_alive()
    first, *others = [record.getMessage().partition(",")[0] for record in caplog.records]
    assert first == "compiling for this machine"
    assert len(others) >= 2
    assert set(others) == {"still compiling for this machine"}
