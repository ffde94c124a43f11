"""The configuration keys of `composite`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from pydantic import ConfigDict, Field, model_validator

from specdec import ConfigError
from specdec.config import SpeculativeConfig
from specdec.interfaces import Capability, Proposer, ProposerConfig, RequestArgs, Resolve
from specdec_plugin_composite.policy import policy_class

_COMMON = frozenset(
    {
        "method", "model", "revision", "num_speculative_tokens", "draft_sample_method", "quantization", "parallel_drafting",
        "max_model_len", "draft_tensor_parallel_size",
    }
)  # fmt: skip
"""Common keys that a single member may set; all others belong to the whole composite."""


@dataclass(frozen=True)
class MemberConfig:
    """One proposer of the composite."""

    proposer: type[Proposer]
    config: ProposerConfig

    @property
    def choices(self) -> dict[str, type[RequestArgs]]:
        """Return the methods by which a request chooses it."""
        return self.config.choices(self.proposer)

    def __str__(self) -> str:
        return f"{self.proposer.name}, k = {self.config.num_speculative_tokens}"


class CompositeConfig(ProposerConfig):
    """The proposers, and how their drafts become one.

    `num_speculative_tokens` defaults to the highest of the proposers' values.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    proposers: tuple[MemberConfig, ...] = Field(
        min_length=2,
        description='A `speculative_config` for each, cheap ones first: `[{"method": "suffix"}, {"method": "eagle3", ...}]`.',
    )
    policy: str = Field(
        default="choose",
        min_length=1,
        description="`choose`: what has the most expected tokens per second, by measurement; `cascade`: the first that "
        "promises enough; `longest`; `extend`: each goes on where the one before ends; `merge`: one tree of all; or the path "
        "of a class.",
    )
    min_promise: float = Field(
        default=2.0,
        ge=0.0,
        allow_inf_nan=False,
        description="With `cascade`: a draft that is likely to bring so many tokens, by the confidence its method gives, is "
        "taken without asking the proposers behind; drafts without confidence promise all their tokens.",
    )

    def choices(self, proposer: type[Proposer]) -> dict[str, type[RequestArgs]]:
        """Return the methods of the members."""
        found: dict[str, type[RequestArgs]] = {}
        for member in self.proposers:
            found |= member.choices
        return found

    @model_validator(mode="after")
    def _promise_is_used(self) -> Self:
        if "min_promise" in self.model_fields_set and self.policy != "cascade":
            raise ValueError(
                f"min_promise does nothing with policy {self.policy!r}: leave it out, or take 'cascade'"
            )
        return self

    @classmethod
    def complete(cls, keys: Mapping[str, Any], resolve: Resolve) -> dict[str, Any]:
        """Resolve the policy, and the configuration of each member."""
        given = keys.get("proposers")
        if not isinstance(given, list | tuple) or not given or not all(isinstance(m, Mapping) for m in given):
            raise ConfigError(
                "speculative_config: 'proposers' needs a list with a speculative_config for each proposer, such as "
                '[{"method": "suffix"}, {"method": "ngram", "num_speculative_tokens": 4}]'
            )
        if len(given) == 1:
            raise ConfigError(
                "speculative_config: 'proposers' has one entry: add another, or take its method without 'composite'"
            )
        policy = policy_class(str(keys.get("policy", cls.model_fields["policy"].default)))
        members = [
            resolve_member(
                dict(member), f"proposers[{number}]", resolve, keeps_q=policy.is_unseen(number, len(given))
            )
            for number, member in enumerate(given)
        ]
        return completed(keys, members)


def completed(keys: Mapping[str, Any], members: list[MemberConfig]) -> dict[str, Any]:
    """Return the keys with resolved members, and the default that follows from them."""
    deepest = max((member.config.num_speculative_tokens for member in members), default=1)
    return {"num_speculative_tokens": deepest, **keys, "proposers": tuple(members)}


def resolve_member(keys: dict[str, Any], origin: str, resolve: Resolve, *, keeps_q: bool) -> MemberConfig:
    """Return a member's class and configuration; it drafts without q unless that is kept.

    Raises:
        ConfigError: if it cannot be a member.
        PluginError: if its method is not installed.
    """
    try:
        proposer, config = _resolved(keys, resolve)
        if config.draft_sample_method == "probabilistic" and not keeps_q:
            proposer, config = resolve({**keys, "draft_sample_method": "greedy"})
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from None
    alien = sorted(set(keys) & set(SpeculativeConfig.model_fields) - _COMMON)
    if alien:
        raise ConfigError(
            f"speculative_config: {origin}: {alien[0]!r} belongs to the composite as a whole: put it beside 'proposers'"
        )
    return MemberConfig(proposer, config)


def _resolved(keys: dict[str, Any], resolve: Resolve) -> tuple[type[Proposer], ProposerConfig]:
    """Resolve a member; a `draft_sample_method` of the whole is for those of its members that can draw."""
    try:
        return resolve(keys)
    except ConfigError:
        if "draft_sample_method" in keys:
            raise
        proposer, config = resolve({**keys, "draft_sample_method": None})
        if Capability.DRAFT_PROBS in proposer.capabilities:
            raise
        return proposer, config
