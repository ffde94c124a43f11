"""Shared parts of the sampler suite: settings, and calls of the sampler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch

from specdec import SamplingParams, registry
from specdec.engine import problem_of
from specdec.interfaces import Sampler, Verdict
from specdec_testing.support.conformance import Conformance
from specdec_testing.support.subjects import path_of
from specdec_testing.support.verdicts import broken, described, not_applicable
from specdec_testing.support.world import Trial, World
from specdec_testing.support.world_drafts import KINDS, Kind

SAMPLED, GREEDY = SamplingParams(temperature=1.0), SamplingParams(temperature=0.0)


class SamplerSuite(Conformance):
    """Settings and helpers of `SamplerConformance`."""

    settings: ClassVar[frozenset[str]] = frozenset({"sampler", "config"})

    sampler: ClassVar[str | type[Sampler]]
    """The sampler: its name, its class, or a path such as `./file.py:Class`."""
    config: ClassVar[Mapping[str, Any]] = {}
    """Keys of the sampler's own configuration."""

    @property
    def _class(self) -> type[Sampler]:
        return registry.sampler(self.sampler if isinstance(self.sampler, str) else path_of(self.sampler))

    def _kinds(self) -> list[Kind]:
        """Return the kinds of drafts that the sampler can receive."""
        return [kind for kind in KINDS.values() if kind.needs <= self._class.capabilities]

    def _require_lossless(self) -> None:
        if not self._class.is_lossless:
            not_applicable("is_lossless is False: the sampler does not claim the target's distribution")

    def _require_exact(self) -> None:
        if not self._class.is_greedy_exact:
            not_applicable("is_greedy_exact is False: the sampler accepts tokens whatever they are")

    def _verify(self, trial: Trial) -> Verdict:
        sampler = self._class(self._class.Config(**self.config))
        try:
            verdict = sampler.verify(trial.scores, trial.batch)
        except Exception as error:
            broken(f"verify raised {described(error)}")
        problem = problem_of(verdict, trial.batch, trial.scores.logits.shape[1])
        if problem is not None:
            broken(f"verify returned {problem}")
        return verdict

    def _trial(
        self, kind: Kind, params: Sequence[SamplingParams], *, world: World | None = None, seed: int = 0
    ) -> Trial:
        """Return a batch of requests after different texts."""
        seeds = [1_000_003 * seed + 7_919 * i for i in range(len(params))]  # odd and even
        texts = torch.arange(len(params)) % 21
        return (world or World(seed=seed)).trial(kind.make, texts, seeds, params)
