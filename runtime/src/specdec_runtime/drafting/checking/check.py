"""Compares the readings of a head by the likelihood of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import log
from pathlib import Path
from typing import Any

import torch

from specdec import ConfigError, EngineOptions, registry
from specdec.config import SpeculativeConfig, infer_method
from specdec.interfaces import TargetHandle
from specdec_runtime.drafting.checking.readings import HeadReadings, Reading
from specdec_runtime.drafting.checking.states import target_states
from specdec_runtime.drafting.checking.texts import read_texts
from specdec_runtime.drafting.checkpoint import HeadCheckpoint
from specdec_runtime.loading import LoadedTarget, load_target
from specdec_runtime.runner import ModuleRunner

Kind = Callable[[HeadCheckpoint, TargetHandle], HeadReadings]
_SURE = 4.0
"""Standard errors by which a reading must be better."""
_LEAST_GAIN = 0.01
"""Nats per token by which a reading must be better."""
_MOST_ROUNDS = 3


@dataclass(frozen=True)
class Tried:
    """A reading, and the log-likelihood of each token: as first token of a draft, then as second."""

    reading: Reading
    first: torch.Tensor
    second: torch.Tensor

    @cached_property
    def all(self) -> torch.Tensor:
        """Both."""
        return torch.cat((self.first, self.second))

    def gain(self, other: Tried) -> tuple[float, float]:
        """Return how much better this one is than another, in nats per token, and the standard error."""
        difference = self.all - other.all
        return float(difference.mean()), float(difference.std() / len(difference) ** 0.5)

    def is_better(self, other: Tried) -> bool:
        """Return whether it is surely better."""
        mean, error = self.gain(other)
        return mean > max(_LEAST_GAIN, _SURE * error)


def check_head(
    source: str,
    model: object,
    prompts: Path,
    *,
    method: str | None = None,
    revision: str | None = None,
    most_tokens: int = 8192,
    longest: int = 4096,
) -> dict[str, Any]:
    """Try every reading of a head that its files leave open.

    Args:
        source: directory or hub id of the head.
        model: the target: a directory, a hub id, or a loaded model.
        prompts: file with texts, at best prompts with the target's answers; see `read_texts`.
        method: the head's method; None to tell it from the files.
        revision: revision of the head on the hub.
        most_tokens: number of tokens of text that are used.
        longest: most tokens of one text; windows above half of that are not tried.

    Returns:
        what the files say, the readings in the order in which they were tried, and the best one.

    Raises:
        ConfigError: for texts that cannot be used, or a method without heads.
        ModelError: for a head or target that cannot be loaded.
        PluginError: for a method that is not installed.
    """
    loaded = load_target(EngineOptions(model=model))
    texts = _some(read_texts(prompts, loaded.tokenizer, min(longest, loaded.max_model_len)), most_tokens)
    options = EngineOptions(model=loaded, enforce_eager=True)
    handle = registry.scorer(options.scorer)().load(options)
    outside = max(max(text) for text in texts)
    if outside >= handle.info.vocab_size:
        raise ConfigError(f"--prompts: id {outside} is none of the target's {handle.info.vocab_size}")
    readings = _readings(source, method, revision, handle)
    return _report(readings, loaded, handle, texts)


def _readings(source: str, method: str | None, revision: str | None, target: TargetHandle) -> HeadReadings:
    method = infer_method(SpeculativeConfig(model=source, method=method, revision=revision)).method
    kind: Kind | None = getattr(registry.proposer(method), "Readings", None)
    if kind is None:
        raise ConfigError(
            f"{source}: method {method!r} drafts without a head, or its heads leave nothing open"
        )
    return kind(HeadCheckpoint(source, revision), target)


def _report(
    readings: HeadReadings, loaded: LoadedTarget, target: TargetHandle, texts: list[list[int]]
) -> dict[str, Any]:
    """Return what `check_head` returns."""
    num_layers, longest = target.info.num_layers, max(map(len, texts))
    published = readings.published()  # before the target runs, for its errors
    runner = ModuleRunner(loaded.model, loaded.device, loaded.max_model_len, is_fused=False)
    states = target_states(runner, texts, num_layers, readings.layers)

    def attempt(reading: Reading) -> Tried:
        return Tried(reading, *readings.likelihoods(reading, states))

    tried = [attempt(published)]
    taken = [tried[0]]
    for _ in range(_MOST_ROUNDS):
        best = taken[-1]
        found = [attempt(_after(best.reading, other)) for other in readings.others(best.reading, longest)]
        tried += found
        better = [each for each in found if each.is_better(best)]
        if not better:
            break
        taken.append(max(better, key=lambda each: float(each.all.mean())))
    return {
        **readings.facts(),
        "num_target_ids": target.info.vocab_size,
        "num_tokens": len(tried[0].first),
        "unigram": _unigram(texts),
        "readings": [_row(each, tried[0]) for each in tried],
        "best": taken[-1].reading.name,
        "remedies": [each.reading.remedy for each in taken[1:]],
    }


def _row(tried: Tried, published: Tried) -> dict[str, Any]:
    gain, error = (0.0, 0.0) if tried is published else tried.gain(published)
    return {
        "reading": tried.reading.name or "as published",
        "first": float(tried.first.mean()),
        "second": float(tried.second.mean()),
        "gain": gain,
        "error": error,
    }


def _after(base: Reading, reading: Reading) -> Reading:
    """Return a reading that differs from another one, which has a name already."""
    return replace(reading, name=f"{base.name}, {reading.name}") if base.name else reading


def _some(texts: list[list[int]], most: int) -> list[list[int]]:
    """Return the first texts, up to a number of tokens; at least one."""
    kept, total = list[list[int]](), 0
    for text in texts:
        if kept and total + len(text) > most:
            break
        kept.append(text)
        total += len(text)
    return kept


def _unigram(texts: list[list[int]]) -> float:
    """Return the log-likelihood per token under the texts' own frequencies, which no useful head is below."""
    counts = Counter(token for text in texts for token in text)
    total = sum(counts.values())
    return sum(count * log(count / total) for count in counts.values()) / total
