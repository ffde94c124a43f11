"""The installed methods, configured for the models of the demo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specdec import ConfigError, PluginError, registry
from specdec.config import ZOO, TargetFacts
from specdec.registry import Group, known_method, known_methods
from specdec_cli.bench.contender import Contender, contenders_of

DEFAULT_TOKENS = 5
"""k for a method without a default."""
PAYING = ("auto", "suffix", "self", "eagle3")
"""The official methods that the demo tries by default, in its order: those that pay on its models."""


@dataclass(frozen=True)
class LeftOut:
    """An installed method that cannot run on the model."""

    method: str
    reason: str
    is_unfit: bool = False
    """Whether it needs something that does not exist for this model, which is not an error."""


def installed_methods(*, has_all: bool = True) -> list[str]:
    """Return the names of the installed methods, without aliases; unless `has_all`, of the official ones those in `PAYING`.

    Those in `PAYING` come first.

    Aliases are known only for a method that loads; one that does not load is listed under each of its names.
    """
    names = [info.name for info in registry.installed(Group.PROPOSERS) if not _is_alias(info.name)]
    chosen = [name for name in names if has_all or name in PAYING or name not in known_methods()]
    return sorted(chosen, key=lambda name: PAYING.index(name) if name in PAYING else len(PAYING))


def missing_distributions() -> list[str]:
    """Return the packages of published methods that are not installed."""
    installed = {info.distribution for info in registry.installed(Group.PROPOSERS)}
    offered = {method.distribution for method in known_methods().values() if method.distribution}
    return sorted(offered - installed)


def left_out(method: str, error: Exception) -> LeftOut:
    """Return why a method cannot run, in a line."""
    lines = str(error).splitlines() or [""]
    is_unfit = isinstance(error, ConfigError | PluginError)
    return LeftOut(method, lines[0] if is_unfit else f"{type(error).__name__}: {lines[0]}", is_unfit)


def configured(method: str, facts: TargetFacts, model: str = ZOO) -> Contender:
    """Return the contender for a method with its options for demos.

    Args:
        method: the name of the method.
        facts: facts about the model.
        model: the model's name, which selects the options.

    Raises:
        ConfigError: if it cannot run on the model.
        PluginError: if it cannot be loaded.
    """
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
