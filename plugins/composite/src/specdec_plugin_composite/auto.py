"""`auto`: what fits of the installed methods, chosen by measurement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from pydantic import Field

from specdec import ConfigError, EngineError, ModelError, PluginError, registry
from specdec.config import ZOO, Checkpoint, notice
from specdec.interfaces import (
    NEEDED_CAPABILITIES,
    Proposer,
    ProposerConfig,
    Resolve,
    TargetHandle,
    TargetInfo,
)
from specdec_plugin_composite.config import CompositeConfig, MemberConfig, completed, resolve_member
from specdec_plugin_composite.member import OF_MODELS, Member
from specdec_plugin_composite.policy import policy_class
from specdec_plugin_composite.proposer import CompositeProposer

_COPYING = ({"method": "suffix"}, {"method": "ngram", "num_speculative_tokens": 8})
"""The first of these that is installed: it copies from the text."""
_TARGET = {"method": "self"}
"""A cheaper form of the target."""
_DEFAULT_TOKENS = 4
"""k of a head whose checkpoint states none."""
_HIDDEN_SIZES = ("target_hidden_size", "transformer_layer_config.hidden_size", "emb_dim", "hidden_size")
"""Keys of a head's `config.json`, the first one that is there, for the size of the states that it reads."""
_REFUSED = (ConfigError, ModelError, PluginError, EngineError)


class AutoConfig(CompositeConfig):
    """No key is needed."""

    proposers: tuple[MemberConfig, ...] = Field(
        default=(), description="Not to be given: `composite` takes a list of your own."
    )

    @classmethod
    def complete(cls, keys: Mapping[str, Any], resolve: Resolve) -> dict[str, Any]:
        """Resolve the configurations of all methods that may fit."""
        if "proposers" in keys:
            raise ConfigError(
                "speculative_config: 'auto' finds its proposers itself: leave 'proposers' out, or take method 'composite'"
            )
        policy = policy_class(str(keys.get("policy", cls.model_fields["policy"].default)))
        candidates = list(_candidates())
        members, reasons = [], []
        for number, candidate in enumerate(candidates):
            keeps_q = policy.is_unseen(number, len(candidates))
            try:
                members.append(_resolved(candidate, resolve, keeps_q=keeps_q))
            except _REFUSED as error:
                reasons.append(str(error).splitlines()[0])
        if not members:
            raise ConfigError(
                "speculative_config: 'auto' finds no method that fits: pip install specdec-plugin-suffix "
                f"specdec-plugin-self-draft{''.join(f'; {reason}' for reason in reasons)}"
            )
        return completed(keys, members)


class AutoProposer(CompositeProposer):
    """A composite of whatever is installed and fits the target: a method that copies, the target itself, heads.

    What does not fit is left out, which is said once with what is taken.
    """

    name: ClassVar[str] = "auto"
    Config: ClassVar[type[ProposerConfig]] = AutoConfig

    def __init__(self, config: CompositeConfig, target: TargetInfo) -> None:
        self._left_out: dict[str, str] = {}
        super().__init__(config, target)

    @classmethod
    def fitting(cls, config: ProposerConfig, target: TargetInfo) -> Proposer:
        """Return the only proposer that fits, if it is one: nothing has to be chosen then."""
        assert isinstance(config, CompositeConfig)
        made = cls(config, target)
        if len(made._members) > 1:
            return made
        made._say()
        return made._members[0].proposer

    def make_members(
        self, config: CompositeConfig, target: TargetInfo
    ) -> list[tuple[Proposer, MemberConfig]]:
        """Return the proposers that can be made for this target."""
        made = []
        for member in config.proposers:
            name = member.proposer.name
            try:
                proposer = member.proposer.fitting(member.config, target)
                _check_size(member, target)
            except _REFUSED as error:
                self._left_out[name] = _first_line(error)
                continue
            if missing := (proposer.capabilities & NEEDED_CAPABILITIES) - target.gives:
                self._left_out[name] = (
                    f"needs {', '.join(sorted(c.name for c in missing))}, which this engine does not give"
                )
                continue
            made.append((proposer, member))
        if target.has_narrow_weights:
            made = self._without_models(made)
        if not made:
            raise ConfigError(f"speculative_config: 'auto' finds no method that fits: {self._reasons}")
        return made

    def _without_models(
        self, made: list[tuple[Proposer, MemberConfig]]
    ) -> list[tuple[Proposer, MemberConfig]]:
        """Leave out what runs a model, if anything else is there."""
        copying = [each for each in made if not each[0].capabilities & OF_MODELS]
        for each in made if copying else ():
            if each not in copying:
                self._left_out[each[1].proposer.name] = (
                    "beside weights in the blocks of a file drafts of a model seldom pay: name it in a composite, or set LLM's "
                    "weights='widen'"
                )
        return copying or made

    def load_member(self, member: Member, target: TargetHandle) -> None:
        """Load a member, or leave it out if it does not fit."""
        try:
            super().load_member(member, target)
        except _REFUSED as error:
            self._left_out[member.name] = _first_line(error)
            member.leave_out()

    def load(self, target: TargetHandle) -> None:
        """Load every member that fits, and say which these are."""
        super().load(target)
        if all(member.is_left_out for member in self._members):
            raise ConfigError(f"speculative_config: 'auto' finds no method that fits: {self._reasons}")
        self._say()

    def _say(self) -> None:
        taken = [member for member in self._members if not member.is_left_out]
        what = ", ".join(
            f"{member.name} ({'runs a model, where that pays' if member.runs_model else 'copies text'})"
            for member in taken
        )
        left_out = f"; left out: {self._reasons}" if self._left_out else ""
        notice(f"auto:{what}{left_out}", f"speculative_config: 'auto' drafts with {what}{left_out}")

    @property
    def _reasons(self) -> str:
        return "; ".join(f"{name}: {reason}" for name, reason in self._left_out.items())


def _candidates() -> Iterator[dict[str, Any]]:
    """Yield the configurations of installed methods that may fit: one that copies, the target itself, its own layers, heads."""
    installed = {
        info.name for info in registry.installed(registry.Group.PROPOSERS) if registry.may_load(info)
    }
    yield from [config for config in _COPYING if config["method"] in installed][:1]
    if _TARGET["method"] in installed:
        yield _TARGET
    for name, known in registry.known_methods().items():
        if name in installed and known.draft in ("head", "target"):
            if known.draft == "target":
                yield {"method": name}
            if known.zoo is not None:
                yield {"method": name, "model": ZOO}


def _resolved(keys: dict[str, Any], resolve: Resolve, *, keeps_q: bool) -> MemberConfig:
    try:
        return resolve_member(keys, keys["method"], resolve, keeps_q=keeps_q)
    except ConfigError as error:
        if "model" not in keys or "num_speculative_tokens" not in str(error):
            raise
        keys = {**keys, "num_speculative_tokens": _DEFAULT_TOKENS}
        return resolve_member(keys, keys["method"], resolve, keeps_q=keeps_q)


def _check_size(member: MemberConfig, target: TargetInfo) -> None:
    """Raise for a head that was made for a target of another size.

    Raises:
        ConfigError: naming both sizes.
    """
    if member.config.model is None:
        return
    size = Checkpoint(member.config.model, member.config.revision).number(*_HIDDEN_SIZES)
    if size is not None and size != target.hidden_size:
        raise ConfigError(
            f"{member.config.model} was made for hidden states of {size}, and the target's have {target.hidden_size}"
        )


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0]
