"""Which of a call's logits processors the sampler does itself."""

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
"""The order in which `generate` puts them."""


@dataclass(frozen=True)
class Sampling:
    """How the tokens of a call are chosen."""

    processors: tuple[LogitsProcessor, ...]
    """What the logits go through first, in order."""
    temperature: float = 1.0
    """0 for the most probable token."""
    top_p: float = 1.0
    min_p: float = 0.0


def sampling_of(processors: Sequence[LogitsProcessor], *, do_sample: bool) -> Sampling:
    """Return how tokens are chosen, from the list that `generate` has made of a call's parameters.

    Temperature, and top-p or min-p behind it, become sampling parameters, so that proposers that draft at the target's
    temperature know it. Everything else runs as transformers' own code: the distribution is transformers' in every
    case. A top-k between them keeps the same ids before the temperature as behind it. Top-p and min-p together stay
    transformers', whose order differs from ours.

    Args:
        processors: in their order.
        do_sample: whether tokens are drawn.
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
