"""The installed methods, as they run on the models of the demo."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from specdec import registry
from specdec.bench.contender import Contender, contenders_of
from specdec.bench.session import Session
from specdec.bench.workload import Workload
from specdec.config import TargetFacts
from specdec.config.zoo import ZOO
from specdec.errors import ConfigError, PluginError
from specdec.loading.target import LoadedTarget
from specdec.registry import Group
from specdec.registry.catalogue import known_method, known_methods

DEFAULT_TOKENS = 5
"""k of a method that has no default of its own."""


@dataclass(frozen=True)
class LeftOut:
    """An installed method that cannot run on the model."""

    method: str
    reason: str
    is_unfit: bool = False
    """Whether it needs something that there is not for this model, which is nobody's mistake."""


def installed_methods() -> list[str]:
    """Return the names of the installed methods; other names of the same method are left out.

    Only a method that loads can tell its other names; one that does not is in the list under each.
    """
    return [info.name for info in registry.installed(Group.PROPOSERS) if not _is_alias(info.name)]


def missing_distributions() -> list[str]:
    """Return the packages of published methods that are not installed."""
    installed = {info.distribution for info in registry.installed(Group.PROPOSERS)}
    offered = {method.distribution for method in known_methods().values() if method.distribution}
    return sorted(offered - installed)


def contender_for(
    method: str, target: LoadedTarget, facts: TargetFacts, workload: Workload, model: str = ZOO
) -> Contender | LeftOut:
    """Return an installed method ready to run on a model, or why it cannot.

    The method is tried out: an engine is made and runs a few steps.

    Args:
        method: its name.
        target: the loaded model.
        facts: of the model.
        workload: what is tried.
        model: the model's name, for the method's options in demos.
    """
    try:
        contender = _configured(method, facts, model)
        strict = {**(contender.config or {}), "on_proposer_error": "raise"}
        session = Session(target, replace(contender, config=strict), workload)
        session.warm_up()
        session.close()
    except Exception as error:  # whatever is wrong with one method is its row in the table, not the end
        lines = str(error).splitlines() or [""]
        told = isinstance(error, ConfigError | PluginError)
        return LeftOut(method, lines[0] if told else f"{type(error).__name__}: {lines[0]}", told)
    return contender


def _configured(method: str, facts: TargetFacts, model: str) -> Contender:
    known = known_method(method)
    config: dict[str, Any] = {"method": method}
    if known is not None:
        config |= known.demo_options.get(model, {})
        if known.zoo is not None:
            config["model"] = ZOO
    try:
        return contenders_of([config], facts)[1]
    except ConfigError:
        return contenders_of([{**config, "num_speculative_tokens": DEFAULT_TOKENS}], facts)[1]


def _is_alias(name: str) -> bool:
    try:
        method = registry.proposer(name)
    except PluginError:
        return False
    known = known_method(name)
    is_published = known is not None and known.name == name
    return name != method.name and name in method.aliases and not is_published
