"""Tries a grammar in a process of its own before it is compiled in this one: a deep one ends the process, others never do."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from contextvars import ContextVar
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from time import monotonic

from specdec import ConfigError

MAX_SECONDS = 30.0
"""The longest that a grammar is tried, if the caller sets no deadline."""
MEMORY_BYTES = 256 * 2**20
deadline: ContextVar[float | None] = ContextVar("deadline", default=None)
"""When, by `time.monotonic`, the caller gives up. A grammar is tried for half of the time until then, since compiling it for
use takes as long again."""
_PLACES = threading.BoundedSemaphore(4)
_PLACE = re.compile(r"^at \d+\(\d+\): (failed to compile JSON schema: )?")
_PROGRAM = """
import json, sys, threading
sys.path.insert(0, sys.argv[1])
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[2]), int(sys.argv[2]) + 1))
    with open("/proc/self/statm") as file:
        most = int(file.read().split()[0]) * resource.getpagesize() + int(sys.argv[3])
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
except (ImportError, OSError):
    pass
class Bytes:
    eos_token_id, bos_token_id, special_token_ids = 256, None, [256]
    tokens = [bytes([value]) for value in range(256)] + [b"\\xff<end>"]
    def __call__(self, text):
        return list(text if isinstance(text, bytes) else text.encode())
def attempt():
    matcher = LLMatcher(LLTokenizer(TokenizerWrapper(Bytes())), grammar, log_level=0)
    is_dead = not matcher.is_error() and not any(matcher.compute_bitmask()[:32]) and not matcher.is_accepting()
    print(json.dumps([matcher.get_error(), is_dead, matcher.get_grammar_warnings()]))
grammar = sys.stdin.buffer.read().decode()
threading.stack_size(2**20)
thread = threading.Thread(target=attempt)
thread.start()
thread.join()
"""


def warnings_of(grammar: str) -> tuple[str, ...]:
    """Return what llguidance leaves out of a grammar that is lenient; usually nothing.

    Args:
        grammar: in llguidance's own form.

    Raises:
        ConfigError: if the grammar is invalid, allows no text, or takes too much time or memory.
    """
    error, warnings = _tried(grammar)
    if error:
        raise ConfigError(error)
    return warnings


@lru_cache(256)
def _tried(grammar: str) -> tuple[str, tuple[str, ...]]:
    found = find_spec("llguidance")
    assert found is not None and found.origin is not None, "a dependency of this package"
    end = deadline.get()
    seconds = MAX_SECONDS if end is None else max(0.1, (end - monotonic()) / 2)
    place = str(Path(found.origin).parents[1])
    command = [sys.executable, "-I", "-c", _PROGRAM, place, str(int(seconds) + 1), str(MEMORY_BYTES)]
    if not _PLACES.acquire(timeout=seconds):
        raise ConfigError("cannot be compiled now: other grammars are being compiled: try again later")
    try:
        done = subprocess.run(
            command, input=grammar.encode(), capture_output=True, timeout=seconds, start_new_session=True, check=False
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ConfigError(f"takes more than {seconds:.3g} s to compile: make it simpler") from None
    finally:
        _PLACES.release()
    if done.returncode or not done.stdout:
        return (
            f"is nested too deeply, or takes more than {MEMORY_BYTES // 2**20} MiB to compile: make it simpler",
            (),
        )
    error, is_dead, warnings = json.loads(done.stdout)
    if is_dead:
        return (
            "allows no text: it leads back to itself, or its parts exclude each other; give one that can end",
            (),
        )
    return (f"cannot be compiled: {_reason(error)}" if error else ""), tuple(warnings)


def _reason(error: str) -> str:
    lines = [_PLACE.sub("", line).strip() for line in error.splitlines() if line.strip()]
    why = next((line.removeprefix("error: ") for line in lines if line.startswith("error: ")), "")
    return f"{lines[0]:.300}{' ' + why if why else ''}: leave it out, or write it another way"
