"""Prepares a conformance suite for one plugin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from specdec import ConfigError, registry
from specdec.messages import explain
from specdec.registry import Group
from specdec_testing.backends import BackendConformance
from specdec_testing.hosts import HostConformance, find_host
from specdec_testing.proposers import ProposerConformance
from specdec_testing.runner import PromiseReport, run_suite
from specdec_testing.samplers import SamplerConformance
from specdec_testing.scorers import ScorerConformance
from specdec_testing.support.checked_proposer import check_keys, checked_proposer
from specdec_testing.support.conformance import Conformance
from specdec_testing.support.target import check_target


@dataclass(frozen=True)
class Check:
    """One plugin and the suite that it must pass."""

    noun: str
    """Method, sampler, scorer, backend or host."""
    suite: type[Conformance]
    config: Mapping[str, Any]
    """The plugin's configuration, with the defaults that the check adds."""
    model: str | None
    """The target; None if the suite needs none."""

    @property
    def num_promises(self) -> int:
        """Number of tests in the suite."""
        return sum(name.startswith("test_") for name in dir(self.suite))

    def run(self, on_report: Callable[[PromiseReport], None] | None = None) -> list[PromiseReport]:
        """Run the suite; return one report per promise."""
        return run_suite(self.suite, on_report=on_report)


def prepare(group: Group, name: str, config: Mapping[str, Any], model: str) -> Check:
    """Return the check of a plugin, after validating its configuration and target.

    Args:
        group: the kind of plugin.
        name: its name, or the path of its class.
        config: its configuration keys.
        model: the target.

    Raises:
        ConfigError: for an invalid configuration, or a target that does not exist.
        PluginError: for a plugin that cannot be loaded.
        ModelError: for a target that cannot be served.
    """
    if group is Group.PROPOSERS:
        check_keys(name, config, model)
        checked = checked_proposer(name, config, model, check_target(model))
        keys = {key: value for key, value in checked.speculative_config.items() if key != "method"}
        return _check(
            group, ProposerConformance, {"method": name, "config": config, "model": model}, keys, model
        )
    if group is Group.SAMPLERS:
        sampler = registry.sampler(name)
        try:
            sampler.Config(**config)
        except ValidationError as error:
            raise ConfigError(explain(error, "--config", sampler.Config)) from None
        return _check(group, SamplerConformance, {"sampler": name, "config": config}, config, None)
    if config:
        raise ConfigError(
            f"--config: a {group.noun} has no configuration; leave out {', '.join(sorted(config))}"
        )
    suite = BackendConformance if group is Group.BACKENDS else ScorerConformance
    (registry.backend if group is Group.BACKENDS else registry.scorer)(name)
    check_target(model)
    return _check(group, suite, {group.noun: name, "model": model}, {}, model)


def prepare_host(name: str, model: str) -> Check:
    """Return the check of an engine that hosts proposers, after validating its target.

    Raises:
        PluginError: for an engine whose adapter is not installed.
        ModelError: for a target that cannot be served.
    """
    find_host(name)
    check_target(model)
    return Check("host", type("TestChecked", (HostConformance,), {"host": name, "model": model}), {}, model)


def _check(
    group: Group,
    suite: type[Conformance],
    settings: dict[str, Any],
    config: Mapping[str, Any],
    model: str | None,
) -> Check:
    return Check(group.noun, type("TestChecked", (suite,), settings), config, model)
