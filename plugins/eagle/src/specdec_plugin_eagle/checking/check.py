"""Compares the readings of a head by the likelihood of text."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from math import log
from pathlib import Path
from typing import Any

import torch

from specdec import ConfigError, EngineOptions, registry
from specdec.interfaces import TargetHandle
from specdec.loading import LoadedTarget, load_target
from specdec.runner import ModuleRunner
from specdec_drafting import HeadCheckpoint
from specdec_plugin_eagle.aux_layers import layers_read
from specdec_plugin_eagle.checking.likelihood import TargetStates, log_likelihoods, target_states
from specdec_plugin_eagle.checking.readings import Reading, others, window_of
from specdec_plugin_eagle.checking.texts import read_texts
from specdec_plugin_eagle.conversion import is_eagle3
from specdec_plugin_eagle.dialects import SPECULATORS_KEY
from specdec_plugin_eagle.loading import load_eagle, load_eagle3
from specdec_plugin_eagle.names import module_name
from specdec_plugin_eagle.settings import EagleSettings

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
    revision: str | None = None,
    most_tokens: int = 8192,
    longest: int = 4096,
) -> dict[str, Any]:
    """Try every reading of an EAGLE head that its files leave open.

    Args:
        source: directory or hub id of the head.
        model: the target: a directory, a hub id, or a loaded model.
        prompts: file with texts, at best prompts with the target's answers; see `read_texts`.
        revision: revision of the head on the hub.
        most_tokens: number of tokens of text that are used.
        longest: most tokens of one text; windows above half of that are not tried.

    Returns:
        what the files say, the readings in the order in which they were tried, and the best one.

    Raises:
        ConfigError: for texts that cannot be used.
        ModelError: for a head or target that cannot be loaded.
    """
    loaded = load_target(EngineOptions(model=model))
    texts = _some(read_texts(prompts, loaded.tokenizer, min(longest, loaded.max_model_len)), most_tokens)
    return _Check(HeadCheckpoint(source, revision), loaded, texts).report()


class _Check:
    """One head on one target."""

    def __init__(self, checkpoint: HeadCheckpoint, loaded: LoadedTarget, texts: list[list[int]]) -> None:
        self.checkpoint, self.loaded, self.texts = checkpoint, loaded, texts
        self.is_eagle3 = is_eagle3({name: module_name(name) for name in checkpoint.names()}, checkpoint)
        options = EngineOptions(model=loaded, enforce_eager=True)
        self.handle: TargetHandle = registry.scorer(options.scorer)().load(options)
        self.num_layers = self.handle.info.num_layers
        outside = max(max(text) for text in texts)
        if outside >= self.handle.info.vocab_size:
            raise ConfigError(
                f"--prompts: id {outside} is none of the target's {self.handle.info.vocab_size}"
            )

    def report(self) -> dict[str, Any]:
        """Return what `check_head` returns."""
        published = self._published()
        settings = published.settings
        tried = [self._try(published)]
        taken = [tried[0]]
        for _ in range(_MOST_ROUNDS):
            best = taken[-1]
            longest = max(map(len, self.texts))
            kinds = others(
                best.reading, is_eagle3=self.is_eagle3, num_layers=self.num_layers, longest=longest
            )
            found = [self._try(_after(best.reading, reading)) for reading in kinds]
            tried += found
            better = [each for each in found if each.is_better(best)]
            if not better:
                break
            taken.append(max(better, key=lambda each: float(each.all.mean())))
        nested = isinstance(self.checkpoint.config.get("model"), dict)
        is_speculators = SPECULATORS_KEY in self.checkpoint.config
        return {
            "method": "eagle3" if self.is_eagle3 else "eagle",
            "dialect": "speculators" if is_speculators else "published, nested" if nested else "published",
            "layers": list(published.aux_ids),
            "window": window_of(settings),
            "num_logits": settings.num_logits,
            "num_target_ids": self.handle.info.vocab_size,
            "num_tokens": len(tried[0].first),
            "unigram": _unigram(self.texts),
            "readings": [self._row(each, tried[0]) for each in tried],
            "best": taken[-1].reading.name,
            "remedies": [each.reading.remedy for each in taken[1:]],
        }

    def _published(self) -> Reading:
        """Return the reading of the files."""
        settings = EagleSettings.from_dict(
            self.checkpoint.config, str(self.checkpoint), is_eagle3=self.is_eagle3
        )
        ids: tuple[int, ...] = ()
        if self.is_eagle3 and settings.uses_aux:
            ids = layers_read(settings.aux_layers, self.num_layers, str(self.checkpoint))
        return Reading("", "", settings, ids)

    @cached_property
    def _states(self) -> list[TargetStates]:
        runner = ModuleRunner(
            self.loaded.model, self.loaded.device, self.loaded.max_model_len, is_fused=False
        )
        return target_states(runner, self.texts, self.num_layers)

    def _try(self, reading: Reading) -> Tried:
        if self.is_eagle3:
            head: Any = load_eagle3(self.checkpoint, self.handle, reading.settings, is_parallel=False)
        else:
            head = load_eagle(self.checkpoint, self.handle, reading.settings)
        runner = ModuleRunner(head, self.loaded.device, self.loaded.max_model_len, is_fused=False)
        runner.allocate(2 * max(map(len, self.texts)))
        first, second = [], []
        for states in self._states:
            final = states.inputs[-1] if reading.is_before_norm else states.final
            with torch.inference_mode():
                features = head.combine(final, tuple(states.inputs[layer] for layer in reading.aux_ids))
            found = log_likelihoods(runner, features, states.tokens)
            first.append(found[0])
            second.append(found[1])
        return Tried(reading, torch.cat(first), torch.cat(second))

    def _row(self, tried: Tried, published: Tried) -> dict[str, Any]:
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
