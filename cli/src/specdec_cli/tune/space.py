"""The configurations that are tried: those of single methods, and combinations of the best of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from specdec import ConfigError, PluginError, registry
from specdec.config import ZOO, TargetFacts, parse_speculative_config, read_mapping
from specdec.interfaces import Capability, Proposer
from specdec.registry import Group
from specdec_cli.bench.candidates import LeftOut, installed_methods
from specdec_cli.bench.contender import Contender, contenders_of
from specdec_cli.tune.candidate import Candidate, Kind
from specdec_cli.tune.form import Form, forms_of, place

COMPOSITE = "composite"
_POLICIES, _ITS_PACKAGE = "specdec.policies", "specdec-plugin-composite"
_ORDER = {"extend": -1}
"""-1 for policies whose first member should be the one that runs a model; others should be asked the cheap one first."""
_NO_DEVICE = "drafts on a device, and the model runs on the CPU"
_OF_MODELS = frozenset(
    {Capability.HIDDEN_STATES, Capability.AUX_HIDDEN_STATES, Capability.OWN_KV, Capability.TARGET_CACHE}
)


class Space:
    """Makes candidates, and remembers what was left out of them and why.

    Args:
        facts: facts about the target.
        is_on_device: whether the target runs on a device that is not the CPU.
    """

    def __init__(self, facts: TargetFacts, *, is_on_device: bool) -> None:
        self._facts, self._is_on_device = facts, is_on_device
        self._configs: list[Mapping[str, Any]] = []
        self.left_out: list[LeftOut] = []

    def leave_out(self, name: str, reason: str) -> None:
        """Record why something is not tried, once."""
        entry = LeftOut(name, reason.removeprefix("speculative_config: "), is_unfit=True)
        if entry not in self.left_out:
            self.left_out.append(entry)

    def given(self, values: Sequence[object]) -> list[Candidate]:
        """Return the user's own configurations as candidates.

        Raises:
            ConfigError: for one that is invalid.
            PluginError: for one whose method cannot be loaded.
        """
        found = []
        for value in values:
            config = read_mapping(value)
            contenders_of([config], self._facts)
            found.append(self._candidate(config))
        return found

    def singles(self) -> list[Candidate]:
        """Return the candidates of installed methods that draft by themselves."""
        found = []
        for method in sorted(_methods(), key=place):
            known = registry.known_method(method)
            if method == COMPOSITE or (known is not None and known.draft == "methods"):
                continue
            draft = {"model": ZOO} if known is not None and known.zoo is not None else {}
            own = [
                candidate
                for form in forms_of(method)
                for candidate in self._of_form({"method": method, **draft, **form.options}, form)
            ]
            found += own
        return found

    def combined(self, ranked: Sequence[Candidate]) -> list[Candidate]:
        """Return combinations of the best single methods.

        Args:
            ranked: single methods, the best first.
        """
        configs: list[dict[str, Any]] = []
        if ranked and not ranked[0].contender.config.get("adaptive"):
            configs.append({**ranked[0].contender.config, "adaptive": True})
        installed = _methods()
        several = [name for name in installed if (m := registry.known_method(name)) and m.draft == "methods"]
        configs += [{"method": name} for name in several if name != COMPOSITE]
        members = [
            next((c.contender.config for c in ranked if c.kind == kind), None) for kind in ("copies", "model")
        ]
        if COMPOSITE in installed and None not in members:
            configs += [
                {"method": COMPOSITE, "proposers": members[:: _ORDER.get(policy, 1)], "policy": policy}
                for policy in registry.entries_of(_POLICIES, _ITS_PACKAGE)
            ]
        return [_named(candidate) for config in configs for candidate in self._valid(config)]

    def _of_form(self, config: dict[str, Any], form: Form) -> list[Candidate]:
        """Return a candidate for each k; all have the same engine if the method does not learn."""
        if form.is_for_devices and not self._is_on_device:
            self.leave_out(_label(config), _NO_DEVICE)
            return []
        found = [
            candidate
            for k in form.depths
            for candidate in self._valid({**config, "num_speculative_tokens": k})
        ]
        if form.learns or not found:
            return found
        deepest = max(found, key=lambda candidate: candidate.num_speculative_tokens)
        return [
            candidate if candidate is deepest else replace(candidate, engine=deepest.contender)
            for candidate in found
        ]

    def _valid(self, config: dict[str, Any]) -> list[Candidate]:
        """Return the candidate of a configuration; none if it is invalid for the target, with the reason recorded."""
        try:
            return [self._candidate(config)]
        except (ConfigError, PluginError) as error:
            self.leave_out(_label(config), str(error).splitlines()[0])
            return []

    def _candidate(self, config: Mapping[str, Any]) -> Candidate:
        resolved = parse_speculative_config(config, target=self._facts)
        assert resolved is not None
        if not resolved.sampler_class.is_lossless:
            raise ConfigError(
                f"speculative_config: rejection_sample_method {resolved.sampler_class.name!r} changes the text, and tune "
                "compares configurations that keep it: leave the key out, or measure this one with specdec bench"
            )
        contender: Contender = contenders_of([*self._configs, config], self._facts)[-1]
        self._configs.append(config)
        k = resolved.config.num_speculative_tokens
        assert k is not None
        return Candidate(contender, k, _kind(resolved.config.method, resolved.proposer_class), contender)


def _methods() -> list[str]:
    """Return the installed methods that the environment lets load."""
    allowed = {info.name for info in registry.installed(Group.PROPOSERS) if registry.may_load(info)}
    return [name for name in installed_methods() if name in allowed]


def _kind(method: str | None, proposer: type[Proposer]) -> Kind:
    known = None if method is None else registry.known_method(method)
    if known is not None and known.draft == "methods":
        return "several"
    return "model" if proposer.capabilities & _OF_MODELS else "copies"


def _named(candidate: Candidate) -> Candidate:
    """Return a composite with a name that tells its policy and members."""
    config = candidate.contender.config
    if config["method"] != COMPOSITE:
        return candidate
    members = " and ".join(f"{m['method']} k={m['num_speculative_tokens']}" for m in config["proposers"])
    return replace(
        candidate, contender=replace(candidate.contender, name=f"{config['policy']} of {members}")
    ).alone()


def _label(config: Mapping[str, Any]) -> str:
    """Return the method's name, with the policy of a composite."""
    return " ".join(str(config[key]) for key in ("method", "policy") if key in config)
