"""Policies: how the drafts of several members become one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, ClassVar

from specdec import ConfigError, PluginError
from specdec.registry import entries_of, is_class_path, load_class
from specdec_plugin_composite.member import Member
from specdec_plugin_composite.round import Choice, Round

POLICIES = "specdec.policies"
"""The entry-point group; an entry point names a class."""
_OWN = "specdec-plugin-composite"


class Policy(ABC):
    """Decides in each step which members are asked, and what of their drafts is verified.

    It never touches q: `Round` drops it where the policy looked at what was drawn.

    Args:
        members: all members, in the order of the configuration.
        min_promise: see `CompositeConfig`.
    """

    name: ClassVar[str]
    """The value of `policy`; equal to the entry-point name."""
    makes_trees: ClassVar[bool] = False
    """Whether it makes trees of chains."""
    is_adaptive: ClassVar[bool] = False
    """Whether it shortens drafts that do not pay by itself, by measured durations, so that `adaptive` is off by default."""

    def __init__(self, members: Sequence[Member], min_promise: float) -> None:
        self.members, self.min_promise = members, min_promise
        self.is_paused = False
        """Whether no member needs to be called in this step."""

    @classmethod
    def is_unseen(cls, member: int, num_members: int) -> bool:
        """Return whether it chooses the drafts of a member that draws unseen, so that they keep their q.

        The other members draft without q: tokens that were drawn and then looked at would be accepted less often.
        """
        return False

    @classmethod  # noqa: B027  most take all
    def check(cls, members: Sequence[Member]) -> None:
        """Raise if it cannot work with these members.

        Raises:
            ConfigError: naming the member and the remedy.
        """

    def pays(self, member: int) -> bool:
        """Return whether a member is worth states that have to be computed again for it, as after a cached prefix."""
        return True

    def waits_for(self, member: int) -> bool:
        """Return whether states are kept for a member that has not drafted for long, so that it can in running requests."""
        return True

    @abstractmethod
    def draft(self, turn: Round) -> list[Choice]:
        """Return what is verified for each row."""

    def begin(self, turn: Round, other_s: float | None) -> None:  # noqa: B027  for policies that measure
        """Learn from the last step, before `draft`.

        Args:
            turn: the step that begins.
            other_s: seconds since the end of the last step's drafting, where these were one pass of decoding; else None.
        """

    def verified(self, turn: Round, offers: Sequence[Any]) -> None:  # noqa: B027  for policies that learn
        """Learn which offers `[B]` (None for no draft) are verified in this step, after `draft`."""

    def finish(self, request_ids: Sequence[str]) -> None:  # noqa: B027  for policies that learn
        """Drop the state of requests."""


def policy_class(name: str) -> type[Policy]:
    """Return the class of a policy: an installed one, `./file.py:Class` or `package.module.Class`.

    Raises:
        ConfigError: if there is none of that name, or if it is no policy.
    """
    if is_class_path(name):
        return _checked(load_class(name), name)
    found = entries_of(POLICIES, _OWN)
    if name not in found:
        nearest = get_close_matches(name, found, n=1)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        raise ConfigError(
            f"speculative_config: 'policy' {name!r} is not installed: {hint}installed: {', '.join(sorted(found))}"
        )
    try:
        loaded: object = found[name].load()
    except (Exception, SystemExit) as error:  # importing a plugin may raise anything
        raise PluginError(f"policy {name!r} cannot be loaded: {type(error).__name__}: {error}") from error
    return _checked(loaded, name)


def _checked(given: object, name: str) -> type[Policy]:
    if not isinstance(given, type) or not issubclass(given, Policy):
        raise ConfigError(
            f"speculative_config: 'policy' {name!r}: {given!r} is not a subclass of specdec_plugin_composite.Policy"
        )
    return given
