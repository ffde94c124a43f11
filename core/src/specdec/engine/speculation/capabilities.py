"""Checks the capabilities of a proposer, alone and against the sampler."""

from __future__ import annotations

from specdec.errors import ConfigError
from specdec.interfaces.capability import Capability, are_capabilities
from specdec.interfaces.proposer import Proposer
from specdec.interfaces.sampler import Sampler
from specdec.interfaces.target import TargetInfo

_MOST_TOP_K = 1024
_ON_HOST_ONLY = {Capability.HIDDEN_STATES, Capability.AUX_HIDDEN_STATES, Capability.TARGET_TOP_K}


def check_capabilities(proposer: Proposer, sampler: Sampler) -> None:
    """Raise if a proposer's capabilities are inconsistent, or the sampler cannot verify its drafts.

    Raises:
        ConfigError: naming the capability and the remedy.
    """
    declared: object = proposer.capabilities  # a plugin may have put anything there
    if not are_capabilities(declared):
        raise ConfigError(
            f"proposer {proposer.name!r}: capabilities is {declared!r}: give a frozenset of specdec.interfaces.Capability"
        )
    given = proposer.capabilities
    on_host = sorted(capability.name for capability in given & _ON_HOST_ONLY)
    if Capability.ON_DEVICE in given and on_host:
        raise ConfigError(
            f"proposer {proposer.name!r} needs {' and '.join(on_host)} in the device form, which this version does not "
            "provide: leave ON_DEVICE out"
        )
    count: object = proposer.num_top_k
    if Capability.TARGET_TOP_K in given and not (type(count) is int and 0 < count <= _MOST_TOP_K):
        raise ConfigError(
            f"proposer {proposer.name!r} declares TARGET_TOP_K with num_top_k = {count!r}: give the number of ids, 1 to "
            f"{_MOST_TOP_K}"
        )
    if Capability.ON_DEVICE in given and Capability.TARGET_CACHE in given:
        raise ConfigError(
            f"proposer {proposer.name!r} drafts on the target's cache in the device form, which does not say where: leave "
            "ON_DEVICE out"
        )
    beyond = given - type(proposer).capabilities
    if beyond:
        raise ConfigError(
            f"proposer {proposer.name!r} declares {', '.join(sorted(c.name for c in beyond))} for this configuration, "
            "which its class does not"
        )
    if Capability.TREE in given and Capability.TREE not in sampler.capabilities:
        raise ConfigError(
            f"proposer {proposer.name!r} drafts trees in this configuration, and sampler {sampler.name!r} takes only chains: "
            "configure the method for chains, or use 'rejection_sample_method': 'strict' (a sampler that walks trees says so "
            "by Capability.TREE in its class)"
        )


def check_given(proposer: Proposer, info: TargetInfo) -> None:
    """Raise if a proposer drafts what a target with recurrent states does not verify.

    Raises:
        ConfigError: naming the remedy.
    """
    missing = proposer.capabilities - info.gives
    if Capability.TREE in missing:
        raise ConfigError(
            f"proposer {proposer.name!r} drafts trees in this configuration, and layers of the target keep recurrent states, "
            "which follow one path: configure the method for chains"
        )
    if Capability.TARGET_CACHE in missing:
        raise ConfigError(
            f"proposer {proposer.name!r} drafts on the target's cache, which would change the recurrent states of its layers: "
            "use another method"
        )
