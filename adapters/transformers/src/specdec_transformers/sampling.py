"""Splits a call's logits processors into sampling parameters and processors to run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from transformers.generation.logits_process import (
    LogitsProcessor,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

_TAIL = (TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper, MinPLogitsWarper)
"""Their order in `generate`."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen in a call."""

    processors: tuple[LogitsProcessor, ...]
    """Processors applied first, in order."""
    temperature: float = 1.0
    """0 for greedy decoding."""
    top_p: float = 1.0
    min_p: float = 0.0


def sampling_of(processors: Sequence[LogitsProcessor], *, do_sample: bool) -> Sampling:
    """Return how tokens are chosen, from the list of processors that `generate` made from the call's parameters.

    Temperature, and a following top-p or min-p, become sampling parameters, because some proposers draft at the target's
    temperature. Everything else runs as transformers' own code, so the distribution always equals that of transformers. A
    top-k between them keeps the same ids before and after the temperature. Top-p and min-p together also run as
    transformers' code, whose order differs from ours.

    Args:
        processors: the processors in order.
        do_sample: whether tokens are sampled.
    """
    unchanged = Sampling(tuple(processors))
    if not do_sample:
        return replace(unchanged, temperature=0.0)
    start = len(processors)
    while start and type(processors[start - 1]) in _TAIL:
        start -= 1
    tail = processors[start:]
    order = [_TAIL.index(type(processor)) for processor in tail]
    if any(a >= b for a, b in pairwise(order)) or {2, 3} <= set(order):
        return unchanged
    kept = list(processors[:start])
    found = replace(unchanged)
    for processor in tail:
        if isinstance(processor, TemperatureLogitsWarper):
            found = replace(found, temperature=float(processor.temperature))
        elif isinstance(processor, TopKLogitsWarper):
            kept.append(processor)
        elif isinstance(processor, TopPLogitsWarper | MinPLogitsWarper):
            if processor.min_tokens_to_keep != 1 or processor.filter_value != -float("inf"):
                return unchanged
            if isinstance(processor, MinPLogitsWarper):
                found = replace(found, min_p=float(processor.min_p))
            elif processor.top_p > 0:
                found = replace(found, top_p=float(processor.top_p))
            else:
                return unchanged
    return replace(found, processors=tuple(kept))
