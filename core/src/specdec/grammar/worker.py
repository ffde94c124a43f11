"""The process that tries grammars. It needs neither torch nor transformers, which would take seconds and 250 MB."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.connection import Connection
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from specdec.errors import ConfigError
from specdec.grammar.compiling import try_grammar
from specdec.structured_outputs import StructuredOutputsParams

if TYPE_CHECKING:
    import xgrammar

MEMORY_BYTES = 1024 * 1024 * 1024
"""How much memory a trial may use."""
_KEPT_BYTES = 256 * 1024 * 1024
"""A process that holds more memory after a trial is not used again."""
_NICENESS = 5
_LOOK_SECONDS = 5.0
"""How often an idle process looks whether its parent is still there: a fork of the parent keeps the connection open."""


def main(descriptor: int) -> None:
    """Answer jobs until the connection closes. A job has `params` and `seconds`, an answer a `source` or an `error`,
    and whether it `is_last`."""
    connection: Connection = Connection(descriptor)
    parent = os.getppid()
    os.nice(_NICENESS)
    try:
        compiler = _compiler(connection.recv_bytes().decode())
        _limit_memory()
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno()
        )  # xgrammar repeats there what it raises
        connection.send_bytes(b"ready")
        while True:
            while not connection.poll(_LOOK_SECONDS):
                if os.getppid() != parent:
                    return
            job = json.loads(connection.recv_bytes())
            # Should the parent be gone, the signal ends this process, whatever it does.
            signal.setitimer(signal.ITIMER_REAL, job["seconds"] + 1)
            answer = _tried(compiler, job["params"]) | {"is_last": _num_bytes("RSS") > _KEPT_BYTES}
            signal.setitimer(signal.ITIMER_REAL, 0)
            connection.send_bytes(json.dumps(answer).encode())
    except (EOFError, OSError):
        return


def _tried(compiler: xgrammar.GrammarCompiler, params: dict[str, Any]) -> dict[str, Any]:
    try:
        source, _ = try_grammar(compiler, StructuredOutputsParams(**params))
        return {"source": asdict(source)}
    except ConfigError as error:
        return {"error": str(error)}


def _compiler(facts: str) -> xgrammar.GrammarCompiler:
    """Return a compiler, without what xgrammar imports for other purposes."""
    sys.modules["torch"] = None  # type: ignore[assignment]  # as if it were not installed
    classes = ModuleType("transformers")
    classes.PreTrainedTokenizerBase = classes.PreTrainedTokenizerFast = object  # type: ignore[attr-defined]
    sys.modules["transformers"] = classes
    package, found = ModuleType("xgrammar"), find_spec("xgrammar")
    assert found is not None and found.submodule_search_locations is not None
    package.__path__ = list(found.submodule_search_locations)
    sys.modules["xgrammar"] = package
    import_module("xgrammar.load_binding")
    from xgrammar.compiler import GrammarCompiler
    from xgrammar.tokenizer_info import TokenizerInfo

    return GrammarCompiler(TokenizerInfo.deserialize_json(facts), max_threads=1, cache_enabled=False)


def _limit_memory() -> None:
    if sys.platform == "linux":
        import resource

        limit = _num_bytes("VM") + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _num_bytes(kind: Literal["VM", "RSS"]) -> int:
    """Return how much memory this process has reserved or holds; 0 where the system does not tell."""
    if sys.platform != "linux":
        return 0
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0 if kind == "VM" else 1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main(int(sys.argv[1]))
