"""The contract of each group's plugin classes. The interfaces are imported only when a class is checked."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from specdec.errors import PluginError
from specdec.registry.plugin_info import Group


@dataclass(frozen=True)
class Role:
    """The contract of one group whose plugins are classes."""

    hook: str
    """The hook that returns its classes."""
    base: str
    """The base class, as a name in `specdec.interfaces`."""
    config: str | None = None
    """The base of its `Config`, if it has one."""
    attributes: tuple[str, ...] = ("name",)
    """Class attributes without a default."""
    parameters: tuple[str, ...] = ()
    """What its constructor is called with, and their types."""

    def check(self, candidate: object, origin: str) -> type[Any]:
        """Return the class if it fulfills the contract.

        Args:
            candidate: the object the plugin returned.
            origin: where it came from; starts every message.

        Raises:
            PluginError: naming the problem and how to fix it.
        """
        from specdec import interfaces
        from specdec.interfaces.capability import are_capabilities

        base: type[Any] = getattr(interfaces, self.base)
        if isinstance(candidate, base):
            raise PluginError(f"{origin}: give the class {type(candidate).__qualname__}, not an object of it")
        if not isinstance(candidate, type) or not issubclass(candidate, base):
            shown = candidate.__qualname__ if isinstance(candidate, type) else repr(candidate)
            raise PluginError(f"{origin}: {shown} must be a subclass of specdec.interfaces.{self.base}")
        label = f"{origin}: class {candidate.__qualname__}"
        if complaint := _other_version(candidate, base, interfaces.SPECDEC_API):
            raise PluginError(f"{label} {complaint}")
        if inspect.isabstract(candidate):
            missing = ", ".join(sorted(getattr(candidate, "__abstractmethods__", ())))
            raise PluginError(f"{label} is abstract: implement {missing}")
        for attribute in self.attributes:
            if not hasattr(candidate, attribute):
                raise PluginError(f"{label} has no class attribute {attribute!r}")
        for wrong, right in _misspelled(candidate, base):
            raise PluginError(
                f"{label} has a class attribute {wrong!r}, which is not read: it is called {right!r}"
            )
        given: object = getattr(candidate, "capabilities", frozenset())
        if not isinstance(given, property) and not are_capabilities(given):
            raise PluginError(
                f"{label}: capabilities is {given!r}: give a frozenset of specdec.interfaces.Capability"
            )
        if self.config is not None:
            config_base: type[Any] = getattr(interfaces, self.config)
            config = getattr(candidate, "Config", None)
            if not isinstance(config, type) or not issubclass(config, config_base):
                raise PluginError(f"{label}: Config must be a subclass of specdec.interfaces.{self.config}")
        if (given := _other_parameters(candidate, len(self.parameters))) is not None:
            expected = ", ".join(("self", *self.parameters))
            raise PluginError(f"{label}: __init__ takes {given}: write def __init__({expected}) -> None")
        return candidate


def _misspelled(candidate: type[Any], base: type[Any]) -> Iterator[tuple[str, str]]:
    """Yield the public class attributes of a plugin that differ from one of the interface's in their capitals alone."""
    known = {name.lower(): name for each in base.__mro__ for name in inspect.get_annotations(each)}
    for each in candidate.__mro__[: candidate.__mro__.index(base)]:
        for name in vars(each):
            right = known.get(name.lower(), name)
            if name != right:
                yield name, right


def _other_parameters(candidate: type[Any], num_arguments: int) -> inspect.Signature | None:
    """Return the parameters of a class that cannot be called with so many arguments by position, or None."""
    try:
        signature = inspect.signature(candidate)
    except ValueError:  # it does not tell
        return None
    try:
        signature.bind(*[None] * num_arguments)
    except TypeError:
        return signature
    return None


def _other_version(candidate: type[Any], base: type[Any], installed: int) -> str | None:
    """Return the problem with a class's `api_version`, or None."""
    version = candidate.api_version
    if version == installed:
        return None
    bases = candidate.__mro__[: candidate.__mro__.index(base)]
    if any("api_version" in vars(each) for each in bases):
        remedy = "upgrade the plugin" if version < installed else "upgrade specdec-core"
        return f"was written for api_version {version}, this specdec has {installed}: {remedy}"
    return (
        f"says no api_version, which means {version}, and this specdec has {installed}: upgrade the plugin, or declare "
        f"api_version = {installed} in a class that was written for it"
    )


ROLES: Mapping[Group, Role] = MappingProxyType(
    {
        Group.PROPOSERS: Role(
            "specdec_register_proposers",
            "Proposer",
            config="ProposerConfig",
            parameters=("config: ProposerConfig", "target: TargetInfo"),
        ),
        Group.SAMPLERS: Role(
            "specdec_register_samplers",
            "Sampler",
            config="SamplerConfig",
            attributes=("name", "is_lossless"),
            parameters=("config: SamplerConfig",),
        ),
        Group.SCORERS: Role("specdec_register_scorers", "Scorer"),
        Group.BACKENDS: Role("specdec_register_backends", "Backend"),
        Group.PARTS: Role("specdec_register_parts", "Part"),
    }
)
