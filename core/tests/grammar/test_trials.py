"""Grammars are tried in processes that end: in time, with the engine, and with the process that started them."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from time import monotonic, sleep

import pytest
import xgrammar
from speccheck.engines import letter_tokenizer, make_llm
from speccheck.grammars import FACTS
from speccheck.models import prompts, tiny

from specdec import ConfigError, SamplingParams
from specdec.grammar import trial
from specdec.grammar.trial import GrammarTrials
from specdec.grammar.worker import MEMORY_BYTES
from specdec.structured_outputs import StructuredOutputsParams

BOMB = StructuredOutputsParams(json={"enum": [f"{i}" * 30 for i in range(20_000)]})
EASY = StructuredOutputsParams(regex="[a-z]{3}")


@pytest.fixture
def trials() -> Iterator[GrammarTrials]:
    made = GrammarTrials(FACTS.serialize_json())
    yield made
    made.close()
    assert made._all == set()


def processes(trials: GrammarTrials) -> list[subprocess.Popen[bytes]]:
    return [trier._process for trier in trials._all]


def run_until(trials: GrammarTrials, params: StructuredOutputsParams, seconds: float) -> object:
    """What a trial returns or raises for a caller that gives up after twice the seconds."""
    token = trial.deadline.set(monotonic() + 2 * seconds)
    try:
        return trials.run(params)
    except ConfigError as error:
        return str(error)
    finally:
        trial.deadline.reset(token)


def test_a_bomb_is_ended_and_costs_nobody_else(trials: GrammarTrials) -> None:
    assert trials.run(EASY).text == "[a-z]{3,3}"
    found: list[object] = []
    started = monotonic()
    bombs = [threading.Thread(target=lambda: found.append(run_until(trials, BOMB, 1.0))) for _ in range(3)]
    for bomb in bombs:
        bomb.start()
    sleep(0.2)
    burning = processes(trials)
    before = monotonic()
    assert trials.run(EASY).form == "regex", "a place is left"
    assert monotonic() - before < 30
    for bomb in bombs:
        bomb.join()
    assert monotonic() - started < 60
    assert len(found) == 3
    assert all("structured_outputs 'json' takes more than" in str(message) for message in found)
    assert len(processes(trials)) <= 1, "one is kept for the next grammar"
    assert sum(process.poll() is None for process in burning) <= 1
    assert trials.run(EASY).form == "regex"


def test_a_process_that_crashes_costs_its_own_grammar(trials: GrammarTrials) -> None:
    trials.run(EASY)
    (process,) = processes(trials)
    process.kill()
    process.wait()
    assert "takes more than" in str(run_until(trials, EASY, 5.0))
    assert trials.run(EASY).form == "regex"


def test_errors_are_those_of_compiling(trials: GrammarTrials) -> None:
    for keys, told in (
        ({"json": {"not": {}}}, "'not' at #"), ({"grammar": "root ::= root"}, "allows no text"),
        ({"regex": "(?=a)"}, "look-ahead"),
        ({"json": {"const": float("inf")}}, "it is not JSON"), ({"structural_tag": {"format": 1}}, "cannot be compiled"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=told):
            trials.run(StructuredOutputsParams(**keys))
    assert len(processes(trials)) == 1, "a wrong grammar does not end the process"


def test_memory_is_bounded() -> None:
    code = f"from specdec.grammar.worker import _limit_memory; _limit_memory(); bytearray({MEMORY_BYTES + 2**28})"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MemoryError" in ended.stderr


def test_a_grammar_of_much_memory_is_told_and_its_process_not_kept(trials: GrammarTrials) -> None:
    wide = StructuredOutputsParams(json={"enum": [f"{i}" * 30 for i in range(60_000)]})
    with pytest.raises(ConfigError, match="cannot be compiled: it takes too much memory"):
        trials.run(wide)
    assert processes(trials) == []
    assert trials.run(EASY).form == "regex"


def test_it_starts_without_torch(trials: GrammarTrials) -> None:
    started = monotonic()
    trials.run(EASY)
    first = monotonic() - started
    (process,) = processes(trials)
    with open(f"/proc/{process.pid}/maps") as file:
        assert "libtorch" not in file.read(), f"it took {first:.1f} s"


def test_an_engine_that_is_shut_down_leaves_no_process() -> None:
    tokenizer = letter_tokenizer()
    tokenizer.eos_token = "kh"
    llm = make_llm(tiny("llama"), tokenizer=tokenizer)
    params = SamplingParams(max_tokens=3, structured_outputs={"regex": "aaaa"})
    for _ in range(2):  # the second time it is known
        (output,) = llm.generate(prompts([5], seed=1), params)
        assert "aaaa".startswith(output.outputs[0].text)
    (process,) = processes(llm._intake._grammars._trials)
    assert process.poll() is None
    llm.shutdown()
    assert process.poll() is not None


def test_it_ends_with_its_parent() -> None:
    """Even with one that is killed, and while it compiles."""
    code = f"""
import os, signal, sys, threading, time
sys.path[:0] = {sys.path!r}
from speccheck.grammars import FACTS
from specdec.grammar.trial import GrammarTrials
from specdec.structured_outputs import StructuredOutputsParams
trials = GrammarTrials(FACTS.serialize_json())
trials.run(StructuredOutputsParams(regex="a"))
print(*[trier._process.pid for trier in trials._all], flush=True)
bomb = StructuredOutputsParams(json={{"enum": [f"{{i}}" * 30 for i in range(20_000)]}})
from specdec.grammar import trial
trial.MAX_SECONDS = 4.0
threading.Thread(target=trials.run, args=[bomb], daemon=True).start()
time.sleep(2)
os.kill(os.getpid(), signal.SIGKILL)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.wait()
    assert parent.returncode == -signal.SIGKILL
    until = monotonic() + 30
    while monotonic() < until and _is_there(pid):
        sleep(0.1)
    assert not _is_there(pid)


def _is_there(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_compiling_for_use_gives_the_same_grammar(trials: GrammarTrials) -> None:
    source = trials.run(StructuredOutputsParams(json={"type": "string", "maxLength": 3}))
    compiled = source.compile(xgrammar.GrammarCompiler(FACTS, max_threads=1))
    matcher = xgrammar.GrammarMatcher(compiled)
    assert matcher.accept_string('"ab\\n"')
    assert not matcher.accept_string("x")
