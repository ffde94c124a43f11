"""One configuration of a run, and its name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specdec.config import ResolvedSpeculation, TargetFacts, parse_speculative_config, read_mapping


@dataclass(frozen=True)
class Contender:
    """One configuration that takes part; the baseline is the one without speculation."""

    name: str
    """Unique within a run."""
    method: str | None = None
    config: Any = None
    """`speculative_config` as it was given, as a mapping; None without speculation."""


BASELINE = Contender("baseline")


def contenders_of(configs: Iterable[object], target: TargetFacts) -> list[Contender]:
    """Return the baseline, then one contender per configuration, all checked against the target.

    Args:
        configs: values of `speculative_config` in any of its forms.
        target: facts about the target.

    Raises:
        ConfigError: for an invalid configuration.
        PluginError: for a method or sampler that cannot be loaded.
    """
    found = [BASELINE]
    for value in configs:
        config = read_mapping(value)
        resolved = parse_speculative_config(config, target=target)
        assert resolved is not None
        found.append(
            Contender(_unique(_name(resolved, config), config, found), resolved.config.method, config)
        )
    return found


def _name(resolved: ResolvedSpeculation, config: Mapping[str, Any]) -> str:
    parts = [resolved.config.method or "", f"k={resolved.config.num_speculative_tokens}"]
    if config.get("adaptive") is not None:
        parts.append("adaptive" if resolved.config.adaptive else "fixed")
    if not resolved.sampler_class.is_lossless:
        parts.append(f"{resolved.sampler_class.name}, lossy")
    return " ".join(parts)


def _unique(name: str, config: Mapping[str, Any], found: Sequence[Contender]) -> str:
    """Return a unique name: `name`, with the keys that differ from the contender of that name, or a number, added if taken."""
    taken = {contender.name: contender.config or {} for contender in found}
    if name in taken:
        other = taken[name]
        own = [f"{key}={value}" for key, value in config.items() if key not in other or other[key] != value]
        name = " ".join([name, *own])
    number, unique = 1, name
    while unique in taken:
        number += 1
        unique = f"{name} #{number}"
    return unique
