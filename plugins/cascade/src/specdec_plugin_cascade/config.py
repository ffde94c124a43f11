"""The configuration keys of `cascade`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ConfigDict, Field

from specdec import ConfigError
from specdec.config import SpeculativeConfig
from specdec.interfaces import Capability, Proposer, ProposerConfig, Resolve

_COMMON = frozenset(
    {
        "method", "model", "revision", "num_speculative_tokens", "draft_sample_method", "quantization", "parallel_drafting",
        "max_model_len", "draft_tensor_parallel_size",
    }
)  # fmt: skip
"""Common keys that a single member may set; all others belong to the whole cascade."""


@dataclass(frozen=True)
class Member:
    """One proposer of the cascade."""

    proposer: type[Proposer]
    config: ProposerConfig

    def __str__(self) -> str:
        return f"{self.proposer.name}, k = {self.config.num_speculative_tokens}"


class CascadeConfig(ProposerConfig):
    """The proposers to call, in this order.

    `num_speculative_tokens` defaults to the highest of the proposers' values.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    proposers: tuple[Member, ...] = Field(
        min_length=2,
        description='A `speculative_config` for each, cheap ones first: `[{"method": "suffix"}, {"method": "eagle3", ...}]`.',
    )

    min_promise: float = Field(
        default=2.0,
        ge=0.0,
        allow_inf_nan=False,
        description="A draft that is likely to bring so many tokens, by the confidence its method gives, is taken without "
        "asking the proposers behind; drafts without confidence promise all their tokens.",
    )

    @classmethod
    def complete(cls, keys: Mapping[str, Any], resolve: Resolve) -> dict[str, Any]:
        """Resolve the configuration of each member."""
        given = keys.get("proposers")
        if not isinstance(given, list | tuple) or not given or not all(isinstance(m, Mapping) for m in given):
            raise ConfigError(
                "speculative_config: 'proposers' needs a list with a speculative_config for each proposer, such as "
                '[{"method": "suffix"}, {"method": "ngram", "num_speculative_tokens": 4}]'
            )
        members = tuple(_member(dict(member), f"proposers[{n}]", resolve) for n, member in enumerate(given))
        deepest = max(member.config.num_speculative_tokens for member in members)
        return {"num_speculative_tokens": deepest, **keys, "proposers": members}


def _member(keys: dict[str, Any], place: str, resolve: Resolve) -> Member:
    try:
        proposer, config = resolve(keys)
        if config.draft_sample_method == "probabilistic":
            # The sampler would need q for every draft, which other members do not provide.
            proposer, config = resolve({**keys, "draft_sample_method": "greedy"})
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from None
    alien = sorted(set(keys) & set(SpeculativeConfig.model_fields) - _COMMON)
    if alien:
        raise ConfigError(
            f"speculative_config: {place}: {alien[0]!r} belongs to the cascade as a whole: put it beside 'proposers'"
        )
    if Capability.ON_DEVICE in proposer.capabilities:
        raise ConfigError(
            f"speculative_config: {place}: {proposer.name!r} drafts on the device, and a cascade chooses on "
            "the host: use a method that drafts there"
        )
    return Member(proposer, config)
