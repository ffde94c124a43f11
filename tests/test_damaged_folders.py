"""Damaged and malicious folders of models and heads: none reads outside itself, and each ends in a sentence or works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import safe_open
from speccheck.damaged import Case, make
from speccheck.opened import files_opened_in
from speccheck.whole_folders import GGUF, KINDS, TARGET, WEIGHTS

from specdec import LLM, ConfigError, EngineOptions, ModelError, PluginError, SamplingParams
from specdec_runtime.loading import LoadedTarget, load_target

FAST, SLOW, ALL, BATCH, COMMANDS = len(KINDS), 100, 200, 10, 2
SIZES = {"max_model_len": 256, "max_num_seqs": 2, "num_gpu_blocks_override": 64, "enforce_eager": True}


@pytest.fixture(scope="module")
def target() -> LoadedTarget:
    return load_target(EngineOptions(model="zoo"))


def outcome(case: Case, target: LoadedTarget, *, is_run: bool) -> str | None:
    """Return the error that a folder ends in; None if it can be used all the same."""
    model = str(case.folder) if case.speculative_config is None else target
    try:
        llm = LLM(model, speculative_config=case.speculative_config, **SIZES)
        try:
            if is_run:
                llm.generate([[5, 6, 7]], SamplingParams(max_tokens=3, temperature=0.0), use_tqdm=False)
            if is_run and case.kind == TARGET and llm.get_tokenizer().chat_template:
                llm.chat([{"role": "user", "content": "x"}], SamplingParams(max_tokens=1), use_tqdm=False)
        finally:
            llm.shutdown()
    except (ConfigError, ModelError, PluginError) as error:
        return str(error)
    return None


def check(seed: int, folder: Path, target: LoadedTarget, *, is_run: bool) -> tuple[Case, str | None]:
    case = make(seed, folder)
    with files_opened_in(case.outside) as opened:
        told = outcome(case, target, is_run=is_run)
    assert opened == [], case
    assert told is None or (told.strip() and "\n" not in told), (case, told)
    return case, told


@pytest.mark.filterwarnings("ignore")  # of libraries, about what is damaged
@pytest.mark.parametrize("seed", range(FAST))
def test_no_folder_leads_out(tmp_path: Path, target: LoadedTarget, seed: int) -> None:
    check(seed, tmp_path, target, is_run=False)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "first",
    [
        pytest.param(seed, marks=pytest.mark.full if seed >= FAST + SLOW else ())
        for seed in range(FAST, FAST + ALL, BATCH)
    ],
)
def test_no_folder_of_many_leads_out(tmp_path: Path, target: LoadedTarget, first: int) -> None:
    found = [check(seed, tmp_path / str(seed), target, is_run=True) for seed in range(first, first + BATCH)]
    assert sum(told is not None for _, told in found) >= BATCH // 4, "damage is damage"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore")
def test_the_command_ends_in_one_line(tmp_path: Path, target: LoadedTarget) -> None:
    served = 0
    for seed in range(FAST, FAST + ALL):
        if KINDS[seed % FAST] in (TARGET, GGUF):
            case, told = check(seed, tmp_path / str(seed), target, is_run=False)
            if told is not None:
                command = [
                    str(Path(sys.executable).with_name("specdec")),
                    "serve",
                    str(case.folder),
                    "--port",
                    "0",
                ]
                done = subprocess.run(command, capture_output=True, text=True, timeout=300)
                lines = [line for line in done.stderr.splitlines() if line.startswith("specdec: error: ")]
                assert (done.returncode, len(lines)) == (2, 1), (case, done.stderr)
                assert "Traceback" not in done.stderr
                served += 1
        if served == COMMANDS:
            return
    pytest.fail("too few")


def test_what_is_opened_is_seen(tmp_path: Path) -> None:
    """The proof above proves something: compiled code and links are seen too."""
    case = make(0, tmp_path)
    with files_opened_in(case.outside) as opened, safe_open(case.outside / WEIGHTS, "pt"):
        pass
    assert WEIGHTS in opened
    (tmp_path / "link").symlink_to(case.outside / "secret.txt")
    with files_opened_in(case.outside) as opened:
        (tmp_path / "link").read_text()
    assert str(case.outside / "secret.txt") in opened
