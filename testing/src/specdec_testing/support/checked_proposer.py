"""The proposer under test: its class, its configuration, and a factory for instances."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from specdec import ConfigError
from specdec.config import (
    CONTEXT_KEYS,
    DEFAULT_SAMPLER,
    ZOO,
    ResolvedSpeculation,
    SpeculativeConfig,
    TargetFacts,
    find_number,
    parse_speculative_config,
    zoo_path,
)
from specdec.interfaces import Proposer, ProposerConfig, TargetHandle
from specdec.registry import known_method
from specdec_testing.support.subjects import path_of
from specdec_testing.support.target import CheckTarget, Model

DEFAULT_TOKENS = 4
"""k for a method without a default, if the configuration does not set it."""


@dataclass(frozen=True)
class CheckedProposer:
    """A suite's `method` and `config`, resolved for its target."""

    speculative_config: Mapping[str, Any]
    """In the form that `LLM` accepts."""
    resolved: ResolvedSpeculation

    @property
    def strict_config(self) -> dict[str, Any]:
        """The same configuration with the `strict` sampler, so that the text can be compared with plain decoding."""
        keys = dict(self.speculative_config)
        if self.resolved.config.rejection_sample_method != DEFAULT_SAMPLER:
            own = (
                self.resolved.sampler_class.Config.model_fields.keys() - SpeculativeConfig.model_fields.keys()
            )
            keys = {k: v for k, v in keys.items() if k not in own}
            keys["rejection_sample_method"] = DEFAULT_SAMPLER
            keys["draft_sample_method"] = self.resolved.config.draft_sample_method
        return keys

    @property
    def num_speculative_tokens(self) -> int:
        """The k of the configuration."""
        k = self.resolved.config.num_speculative_tokens
        assert k is not None
        return k

    @property
    def proposer_class(self) -> type[Proposer]:
        """The class under test."""
        return self.resolved.proposer_class

    def make(self, target: CheckTarget, handle: TargetHandle | None = None, **changes: Any) -> Proposer:
        """Return a new, loaded proposer.

        Args:
            target: the target.
            handle: the handle it is loaded with; None means the target's own.
            **changes: keys of the proposer's configuration to change.
        """
        config: ProposerConfig = self.resolved.proposer_config
        if changes:
            config = type(config)(**({k: v for k, v in config if k in config.model_fields_set} | changes))
        proposer = self.proposer_class.fitting(config, target.handle.info)
        proposer.load(handle or target.handle)
        return proposer


def checked_proposer(
    method: str | type[Proposer], config: Mapping[str, Any], model: Model, target: CheckTarget
) -> CheckedProposer:
    """Return the proposer behind a suite's settings.

    A method without a default k gets `DEFAULT_TOKENS`. On the zoo's target a published method gets its draft from the zoo.

    Raises:
        ConfigError: for an invalid configuration.
        PluginError: for a method that cannot be loaded.
    """
    return _resolved(_keys(method, config, model), _facts(target))


def check_keys(method: str, config: Mapping[str, Any], model: Model) -> None:
    """Check the keys that a method needs, before a target is loaded.

    Raises:
        ConfigError: for a key that is wrong or missing, and how `specdec check` takes it.
        PluginError: for a method that cannot be loaded.
    """
    try:
        _resolved(_keys(method, config, model), None)
    except ConfigError as error:
        raise ConfigError(f"""{error}; specdec check takes keys as --config '{{"KEY": VALUE}}'""") from None


def _keys(method: str | type[Proposer], config: Mapping[str, Any], model: Model) -> dict[str, Any]:
    name = path_of(method) if isinstance(method, type) else method
    keys: dict[str, Any] = {"method": name, **config}
    known = known_method(name)
    if known is not None and known.zoo is not None and model == ZOO and "model" not in keys:
        with suppress(ConfigError):  # of a draft that the zoo does not have
            zoo_path(known.zoo)
            keys["model"] = ZOO
    return keys


def _resolved(keys: dict[str, Any], facts: TargetFacts | None) -> CheckedProposer:
    try:
        resolved = parse_speculative_config(keys, target=facts)
    except ConfigError:
        if "num_speculative_tokens" in keys:
            raise
        keys["num_speculative_tokens"] = DEFAULT_TOKENS
        resolved = parse_speculative_config(keys, target=facts)
    assert resolved is not None
    return CheckedProposer(keys, resolved)


def _facts(target: CheckTarget) -> TargetFacts:
    config = target.loaded.model.config.to_dict()
    return TargetFacts(
        model=target.loaded.path,
        hf_config=config,
        vocab_size=target.handle.info.vocab_size,
        max_model_len=find_number(config, *CONTEXT_KEYS),
    )
