"""The installed methods, configured for the models of the demo."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from specdec import ConfigError, PluginError, registry
from specdec.config import ZOO, TargetFacts
from specdec.registry import Group, known_method, known_methods
from specdec_cli.bench.contender import Contender, contenders_of
from specdec_cli.bench.session import Session
from specdec_cli.bench.workload import Workload
from specdec_runtime.loading import LoadedTarget

DEFAULT_TOKENS = 5
"""k for a method without a default."""
TRIED_TOKENS = 24
"""The most tokens of each answer in a trial."""
TRIED_TEMPERATURE = 0.8
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


def contender_for(
    method: str, target: LoadedTarget, facts: TargetFacts, workload: Workload, model: str = ZOO
) -> Contender | LeftOut:
    """Return the contender for an installed method on a model, or why it cannot run.

    The method answers the first prompt, greedily and sampled, so that nothing is left to compile when it is measured.

    Args:
        method: the name of the method.
        target: the loaded model.
        facts: facts about the model.
        workload: the workload of the test.
        model: the model's name, which selects the method's options for demos.
    """
    try:
        contender = configured(method, facts, model)
        strict = {**(contender.config or {}), "on_proposer_error": "raise"}
        for temperature in (workload.temperature, TRIED_TEMPERATURE):
            few = replace(
                workload, prompts=workload.prompts[:1], max_tokens=TRIED_TOKENS, temperature=temperature
            )
            session = Session(target, replace(contender, config=strict), few)
            session.run()
            session.close()
    except Exception as error:  # an error of one method becomes its row in the table and must not end the run
        lines = str(error).splitlines() or [""]
        is_user_error = isinstance(error, ConfigError | PluginError)
        return LeftOut(
            method, lines[0] if is_user_error else f"{type(error).__name__}: {lines[0]}", is_user_error
        )
    return contender


def configured(method: str, facts: TargetFacts, model: str = ZOO) -> Contender:
    """Return the contender for a method with its options for demos; see `contender_for`.

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
