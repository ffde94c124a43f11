"""The part of vLLM that is used, typed here because vLLM is installed in a separate environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Protocol, cast


class Completion(Protocol):
    """One sample."""

    token_ids: Sequence[int]


class Output(Protocol):
    """One finished request."""

    outputs: Sequence[Completion]


class Llm(Protocol):
    """`vllm.LLM`."""

    def generate(
        self, prompts: Sequence[Mapping[str, list[int]]], params: object, *, use_tqdm: bool
    ) -> list[Output]:
        """Generate for every prompt, in order."""
        ...

    def get_metrics(self) -> list[object]:
        """Return all metrics, counters and vectors; requires statistics."""
        ...


def make_llm(arguments: Mapping[str, object]) -> Llm:
    """Make a `vllm.LLM`."""
    return cast(Llm, import_module("vllm").LLM(**arguments))


def make_params(**arguments: object) -> object:
    """Make `vllm.SamplingParams`."""
    params: object = import_module("vllm").SamplingParams(**arguments)
    return params
