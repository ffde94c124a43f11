"""Facts that core knows without the packages they are about: published methods, official commands, parts and samplers.

All of it is data in `methods.json`; adding a method needs no change to the code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Literal

DraftKind = Literal["none", "model", "head", "target", "class", "methods"]
"""Where drafts come from: no weights, a whole model, a head on the target, layers of the target's own
checkpoint (or of one given), a class given by its import path, or other methods."""


@dataclass(frozen=True)
class KnownMethod:
    """One published method, as `methods.json` describes it."""

    name: str
    summary: str
    draft: DraftKind
    distribution: str | None = None
    """The package that provides it; None if specdec has none."""
    aliases: tuple[str, ...] = ()
    old_names: tuple[str, ...] = ()
    """Accepted with a deprecation warning."""
    model_names: tuple[str, ...] = ()
    """Values of `model` that select this method."""
    old_model_names: tuple[str, ...] = ()
    is_fallback: bool = False
    """Whether a checkpoint that matches no other method belongs to this one."""
    model_types: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    """`fnmatch` patterns."""
    config_keys: tuple[str, ...] = ()
    """Keys of a `config.json` that only this method's checkpoints have."""
    tensors: tuple[tuple[str, ...], ...] = ()
    """Alternatives; in each, every pattern must match a tensor name, or none if it starts with `!`."""
    spellings: tuple[str, ...] = ()
    """Substrings of a lower-case model name that identify the method."""
    speculators_types: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Values of `speculators_model_type`, each with the keys it implies."""
    n_predict: tuple[str, ...] = ()
    """Dotted keys of the draft's (or target's) `config.json` that hold the number of tokens it predicts."""
    n_predict_of: Mapping[str, int] = field(default_factory=dict)
    """That number by the draft's `model_type`, where no key holds it."""
    head_tensors: str | None = None
    """Regular expression for tensor names whose group counts the draft's heads from 0; each predicts a token."""
    default_tokens_option: str | None = None
    """The plugin's own option that provides the default of `num_speculative_tokens`."""
    forced: Mapping[str, Any] = field(default_factory=dict)
    """Common keys with a fixed value."""
    zoo: str | None = None
    """The zoo's artefact for it."""
    demo_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Options for `specdec demo` that differ from the defaults, by the name of the model."""
    no_drafts_hint: str | None = None
    """Why it may draft nothing, and what to do about it."""


@dataclass(frozen=True)
class PackagedModel:
    """A published model that is the file of a package, as `methods.json` describes it."""

    file: str
    """The package, with its version; of what it depends on nothing is needed."""
    parts: tuple[str, ...]
    """Parts of specdec that read it."""


@cache
def packaged_models() -> Mapping[str, PackagedModel]:
    """Return the published models that are installed as packages, by name."""
    models = {name: PackagedModel(**_frozen(entry)) for name, entry in _data()["models"].items()}
    return MappingProxyType(models)


@cache
def known_methods() -> Mapping[str, KnownMethod]:
    """Return the published methods by name, in the order in which checkpoints are matched against them."""
    methods = {name: KnownMethod(name=name, **_frozen(entry)) for name, entry in _data()["methods"].items()}
    return MappingProxyType(methods)


@cache
def known_commands() -> Mapping[str, tuple[str, str]]:
    """Return the official commands by name: the package of each, and its line in the list of commands."""
    return MappingProxyType({name: (package, line) for name, (package, line) in _data()["commands"].items()})


@cache
def official_packages(group: str) -> Mapping[str, str]:
    """Return the official package of each part, sampler or scorer outside core, by name; of other groups nothing is known."""
    return MappingProxyType(_data()["packages"].get(group, {}))


@cache
def always_allowed() -> frozenset[str]:
    """Return the distributions whose plugins may always load."""
    return frozenset(_data()["always_allowed"])


def known_method(name: str) -> KnownMethod | None:
    """Return the published method of that name or alias, old names included."""
    methods = known_methods()
    if name in methods:
        return methods[name]
    return next((m for m in methods.values() if name in m.aliases or name in m.old_names), None)


def _data() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(files("specdec").joinpath("methods.json").read_text(encoding="utf-8"))
    return data


def _frozen(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _tuples(value) if isinstance(value, list) else value for key, value in entry.items()}


def _tuples(values: list[Any]) -> tuple[Any, ...]:
    return tuple(tuple(v) if isinstance(v, list) else v for v in values)
