"""Opens a proposer for a host: resolves its configuration, creates and loads it."""

from __future__ import annotations

from collections.abc import Collection
from importlib.util import find_spec

from specdec import ConfigError, EngineOptions
from specdec.assembly import open_speculation
from specdec.config import ResolvedSpeculation, parse_speculative_config
from specdec.interfaces import NEEDED_CAPABILITIES, Capability, Proposer
from specdec.registry.plugin_call import importing
from specdec_hosting.hosted import HostedProposer
from specdec_hosting.target import HostTarget

OWN_VERIFIER = ("strict",)
"""The values of `rejection_sample_method` for a host that verifies drafts only with its own draws."""


def resolve_for_host(
    speculative_config: object,
    target: HostTarget,
    *,
    host: str,
    samplers: Collection[str] = OWN_VERIFIER,
) -> ResolvedSpeculation:
    """Resolve a `speculative_config` without creating the proposer; otherwise as `open_proposer`."""
    speculation = (
        speculative_config
        if isinstance(speculative_config, ResolvedSpeculation)
        else importing(
            "the plugin", lambda: parse_speculative_config(speculative_config, target=target.facts)
        )
    )
    if speculation is None:
        raise ConfigError(f"speculative_config: {host} needs one that names a method")
    config = speculation.config
    if speculation.sampler_class.name not in samplers:
        raise ConfigError(
            f"speculative_config: 'rejection_sample_method': {config.rejection_sample_method!r} is not available in {host}: "
            f"use one of {', '.join(samplers)}"
        )
    return speculation


def open_proposer(
    speculative_config: object,
    target: HostTarget,
    *,
    host: str,
    samplers: Collection[str] = OWN_VERIFIER,
) -> HostedProposer:
    """Resolve a `speculative_config`, load the proposer it names, and return it for the loop of another engine.

    Args:
        speculative_config: as for `LLM`: a mapping, JSON or YAML text, or the path of a file.
        target: facts about the host's target, and the parts of it that the host provides.
        host: name of the engine, for messages.
        samplers: the values of `rejection_sample_method` that the host supports.

    Raises:
        ConfigError: for a configuration that is wrong, or that the host does not support.
        PluginError: for a method that is not installed or cannot be loaded.
        ModelError: for a draft that cannot be loaded.
    """
    resolved = resolve_for_host(speculative_config, target, host=host, samplers=samplers)
    sampler = resolved.sampler_class(resolved.sampler_config)
    options = EngineOptions(
        model=target.path,
        dtype=target.dtype,
        max_model_len=target.max_model_len,
        max_num_seqs=target.max_num_seqs,
        kv_cache_memory_bytes=target.kv_cache_memory_bytes,
        device=str(target.device),
    )
    models = None
    if find_spec("specdec_runtime") is not None:
        from specdec_hosting.models import HostModels

        models = HostModels(target, options)
    handle = target.handle() if models is None else models.handle()

    def load(proposer: Proposer) -> None:
        _check_host(proposer, target, host)
        proposer.load(handle)

    speculation = open_speculation(resolved, target.info, sampler, load, table=target.table)
    if models is not None:
        models.allocate()
    return HostedProposer(resolved, target.info, speculation, host)


def _check_host(proposer: Proposer, target: HostTarget, host: str) -> None:
    missing = (proposer.capabilities & NEEDED_CAPABILITIES) - target.gives
    if missing:
        raise ConfigError(
            f"speculative_config: proposer {proposer.name!r} needs {_names(missing)} of the target, which {host} does not "
            "provide: use a method that needs token ids only"
        )
    if Capability.TREE in proposer.capabilities - target.gives:
        raise ConfigError(
            f"speculative_config: proposer {proposer.name!r} drafts trees in this configuration, and {host} verifies only "
            "chains: configure the method for chains"
        )


def _names(capabilities: frozenset[Capability]) -> str:
    return ", ".join(sorted(capability.name for capability in capabilities))
