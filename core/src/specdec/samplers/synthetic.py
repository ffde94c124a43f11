"""The `synthetic` sampler: accepts at given rates, to measure speed. The text is meaningless."""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field, field_validator

from specdec.config.synthetic import check_rates
from specdec.interfaces.sampler import SamplerConfig
from specdec.samplers.links import NO_NODE
from specdec.samplers.scheme import Rule, Scheme
from specdec.samplers.trial import Trial
from specdec.samplers.verifier import Verifier


class SyntheticConfig(SamplerConfig):
    """How many drafted tokens are accepted."""

    synthetic_acceptance_rates: tuple[float, ...] = Field(
        description="For each position the rate at which a token is accepted together with all before it; never rising."
    )

    @field_validator("synthetic_acceptance_rates")
    @classmethod
    def _are_rates(cls, rates: tuple[float, ...]) -> tuple[float, ...]:
        check_rates(rates)
        return rates


class SyntheticSampler(Verifier):
    """Accepts drafted tokens whatever they are, at temperature 0 too, and draws from p after the last one.

    In a tree it follows the first child at each depth. Nothing is accepted at depths without a rate.
    """

    name: ClassVar[str] = "synthetic"
    is_lossless: ClassVar[bool] = False
    is_greedy_exact: ClassVar[bool] = False
    Config: ClassVar[type[SamplerConfig]] = SyntheticConfig

    def scheme(self, trial: Trial) -> Scheme:
        """Return the scheme: thresholds are rates conditional on the token before being accepted."""
        assert isinstance(self.config, SyntheticConfig)
        rates = (1.0, *self.config.synthetic_acceptance_rates, 0.0)
        steps = np.array([now / before if before else 0.0 for before, now in pairwise(rates)])
        depths = _depths_of_first_children(trial)
        thresholds = np.where(depths > 0, steps[np.clip(depths - 1, 0, len(steps) - 1)], 0.0)
        return Scheme(
            torch.from_numpy(thresholds).to(trial.probs.device), Rule.FIRST_CHILD, trial.target_after
        )


def _depths_of_first_children(trial: Trial) -> npt.NDArray[np.int64]:
    """Return `[B, N]`: depth of the nodes on the path of first children, 0 for all others and for padding."""
    if trial.is_chain:
        return np.where(trial.parents == NO_NODE, 0, trial.parents + 2)
    depths = np.zeros(trial.parents.shape, np.int64)
    ends = np.full(trial.size, -1)
    reached = np.zeros(trial.size, np.int64)
    for node in range(trial.width):
        is_next = trial.parents[:, node] == ends
        reached += is_next
        depths[:, node] = np.where(is_next, reached, 0)
        ends[is_next] = node
    return depths
