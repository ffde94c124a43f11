"""What an adapter provides so that its engine can be checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any, ClassVar, Protocol

from specdec import PluginError
from specdec.config import resolve_name

GROUP = "specdec.hosts"
"""The group of entry points: the name of an engine, and the class that runs it."""


class Host(Protocol):
    """An engine that runs one target in float32, with a proposer of specdec."""

    reads_gguf: ClassVar[bool]
    """Whether it takes a GGUF file as it is; others get a directory with the file's weights."""

    def __init__(
        self, model: str, speculative_config: Mapping[str, Any], *, caches_prefixes: bool, max_model_len: int
    ) -> None:
        """Start the engine.

        Args:
            model: directory of the target, or a GGUF file.
            speculative_config: specdec's.
            caches_prefixes: whether the engine keeps the cache of prompts, if it can.
            max_model_len: longest context, in tokens.
        """

    def generate(self, prompts: Sequence[Sequence[int]], num_tokens: Sequence[int]) -> list[list[int]]:
        """Return as many greedy tokens after each prompt; no token ends a text, and all are asked at once if they can be."""

    def counters(self) -> Mapping[str, Any]:
        """Return the proposer's counters, by the names of `LLM.get_metrics`."""

    def close(self) -> None:
        """End the engine."""


def find_host(name: str) -> type[Host]:
    """Return the class that runs an engine.

    Raises:
        PluginError: for an engine whose adapter is not installed.
    """
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in found:
        raise PluginError(
            f"--host: no adapter for {name!r} is installed, only for {', '.join(sorted(found)) or 'none'}: "
            f"pip install specdec-{name.replace('_', '-')}"
        )
    host: type[Host] = found[name].load()
    return host


def target_for(host: type[Host], model: str) -> str:
    """Return a target as an engine takes it."""
    is_taken = getattr(host, "reads_gguf", False) and model.endswith(".gguf")
    return model if is_taken else resolve_name(model, dtype="float32")
