"""The `synthetic` sampler: accepts at given rates, to measure speed. The text is meaningless."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import ClassVar

import torch
from pydantic import Field, model_validator

from specdec.interfaces.sampler import SamplerConfig
from specdec.samplers.acceptance_rates import check_rates, rates_of_length, rates_of_mean
from specdec.samplers.padded_drafts import PaddedDrafts
from specdec.samplers.scheme import Rule, Scheme
from specdec.samplers.verifier import Verifier


class SyntheticConfig(SamplerConfig):
    """How many drafted tokens are accepted: exactly one of the three `synthetic_*` keys."""

    num_speculative_tokens: int | None = Field(
        None,
        gt=0,
        description="k of `speculative_config`: the positions that a rate or a length is spread over.",
    )
    synthetic_acceptance_rate: float | None = Field(
        None,
        ge=0.0,
        le=1.0,
        description="Share of drafted tokens that are accepted, falling geometrically by position.",
    )
    synthetic_acceptance_rates: tuple[float, ...] | None = Field(
        None,
        description="For each position the rate at which a token is accepted together with all before it; never rising.",
    )
    synthetic_acceptance_length: float | None = Field(
        None, ge=1.0, description="Mean acceptance length, bonus token counted."
    )

    @model_validator(mode="after")
    def _one_is_given(self) -> SyntheticConfig:
        keys = [key for key in type(self).model_fields if key.startswith("synthetic_")]
        given = [key for key in keys if getattr(self, key) is not None]
        if len(given) != 1:
            several = ", not several" if given else ""
            raise ValueError(f"the sampler 'synthetic' needs one of {', '.join(map(repr, keys))}{several}")
        try:
            check_rates(self.rates, self.num_speculative_tokens)
        except ValueError as error:
            raise ValueError(f"{given[0]!r}: {error}") from None
        return self

    @cached_property
    def rates(self) -> tuple[float, ...]:
        """For each position the rate at which a token is accepted together with all before it."""
        if self.synthetic_acceptance_rates is not None:
            return self.synthetic_acceptance_rates
        if self.num_speculative_tokens is None:
            raise ValueError("needs 'num_speculative_tokens' too")
        if self.synthetic_acceptance_length is not None:
            return rates_of_length(self.synthetic_acceptance_length, self.num_speculative_tokens)
        assert self.synthetic_acceptance_rate is not None
        return rates_of_mean(self.synthetic_acceptance_rate, self.num_speculative_tokens)


class SyntheticSampler(Verifier):
    """Accepts drafted tokens whatever they are, at temperature 0 too, and draws from p after the last one.

    In a tree it follows the first child at each depth. Nothing is accepted at depths without a rate.
    """

    name: ClassVar[str] = "synthetic"
    is_lossless: ClassVar[bool] = False
    is_greedy_exact: ClassVar[bool] = False
    Config: ClassVar[type[SamplerConfig]] = SyntheticConfig

    def scheme(self, padded: PaddedDrafts) -> Scheme:
        """Return the scheme: thresholds are rates conditional on the token before being accepted."""
        assert isinstance(self.config, SyntheticConfig)
        rates = (1.0, *self.config.rates, 0.0)
        steps = [now / before if before else 0.0 for before, now in pairwise(rates)]
        by_depth = torch.tensor([0.0, *steps], dtype=torch.float64, device=padded.probs.device)
        thresholds = by_depth[_depths_of_first_children(padded).clamp_max(len(steps))]
        return Scheme(thresholds, Rule.FIRST_CHILD, padded.target_after)


def _depths_of_first_children(padded: PaddedDrafts) -> torch.Tensor:
    """Return `[B, N]`: depth of the nodes on the path of first children, 0 for all others and for padding."""
    depths = torch.zeros_like(padded.parents)
    ends = depths.new_full((padded.size,), -1)
    reached = torch.zeros_like(ends)
    for node in range(padded.width):
        is_next = padded.parents[:, node] == ends
        reached += is_next
        depths[:, node] = torch.where(is_next, reached, 0)
        ends = torch.where(is_next, node, ends)
    return depths
