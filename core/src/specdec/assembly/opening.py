"""Makes and loads the configured proposer; its own exceptions become errors that name it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from specdec.adaptive.adaptive_depth import AdaptiveDepth
from specdec.config import ResolvedSpeculation
from specdec.engine.containment.guard import ProposerGuard
from specdec.engine.metrics import EngineMetrics
from specdec.engine.request_lines import RequestLines
from specdec.engine.speculation.delivery import Delivery
from specdec.engine.speculation.speculation import Speculation
from specdec.errors import ConfigError, EngineError, ModelError, PluginError, described, is_interrupt, line_of
from specdec.interfaces.capability import Capability, are_capabilities
from specdec.interfaces.draft_slots import DraftSlots
from specdec.interfaces.proposer import Proposer
from specdec.interfaces.request_table import RequestTable
from specdec.interfaces.sampler import Sampler
from specdec.interfaces.target import TargetInfo
from specdec.registry.plugin_call import call_plugin

Made = TypeVar("Made")
_MOST_TOP_K = 1024


def open_speculation(
    resolved: ResolvedSpeculation,
    info: TargetInfo,
    sampler: Sampler,
    load: Callable[[Proposer], None],
    *,
    is_strict: bool = False,
    is_adaptive: bool = False,
    draft_slots: DraftSlots | None = None,
    table: RequestTable | None = None,
) -> Speculation:
    """Make the configured proposer, check it and load it.

    Settings of the process that it changes are put back and counted.

    Args:
        resolved: the configuration.
        info: facts about the target.
        sampler: verifies its drafts.
        load: calls `Proposer.load` with the target.
        is_strict: see `ProposerGuard`.
        is_adaptive: the value of `adaptive` where the configuration has none.
        draft_slots: of the target's cache, if that is lent.
        table: the committed tokens of all requests, if a host has them on the device and fills them itself.

    Raises:
        ConfigError: if the configuration does not fit the target or the sampler.
        ModelError: for weights that cannot be used.
        PluginError: if its constructor or `load` raises anything else.
    """
    config, made = resolved.config, resolved.proposer_class
    proposer, changed = named(made, "__init__", lambda: made.fitting(resolved.proposer_config, info))
    check_capabilities(proposer, sampler)
    changed += named(made, "load", lambda: load(proposer))[1]
    check_layers(proposer, info)
    metrics = EngineMetrics()
    guard = ProposerGuard(
        proposer,
        info.vocab_size,
        is_fallback=config.on_proposer_error == "fallback",
        is_strict=is_strict,
        supports_trees=Capability.TREE in proposer.capabilities & sampler.capabilities,
        metrics=metrics,
    )
    guard.count_changes(changed)
    delivery = Delivery(
        no_states=no_states(proposer, info),
        device=info.device,
        num_top_k=proposer.num_top_k if Capability.TARGET_TOP_K in proposer.capabilities else 0,
        metrics=metrics,
        draft_slots=draft_slots if Capability.TARGET_CACHE in guard.capabilities else None,
        lines=lines_for(proposer, info, table),
    )
    k = config.num_speculative_tokens
    assert k is not None
    if not isinstance(proposer, made):
        k = min(k, proposer.config.num_speculative_tokens)
    depth = None
    if (is_adaptive and not proposer.is_timed) if config.adaptive is None else config.adaptive:
        depth = AdaptiveDepth(k, can_shorten=Capability.TREE not in proposer.capabilities)
    has_caps = config.disable_by_batch_size is not None or config.num_speculative_tokens_per_batch_size
    return Speculation(guard, delivery, k, config.cap if has_caps else None, depth, metrics)


def lines_for(proposer: Proposer, info: TargetInfo, table: RequestTable | None = None) -> RequestLines | None:
    """Return the lines of a request table for a proposer that reads one, of a host's if it has one; None for others."""
    if Capability.REQUEST_TABLE not in proposer.capabilities:
        return None
    if table is not None:
        return RequestLines(table, is_host_filled=True)
    return RequestLines(RequestTable.on(info.device, info.max_num_seqs, info.max_model_len))


def no_states(proposer: Proposer, info: TargetInfo) -> tuple[torch.Tensor, ...]:
    """Return empty states `[0, H]`: the final ones and one per aux layer; () if the proposer needs none."""
    if not proposer.capabilities & {Capability.HIDDEN_STATES, Capability.AUX_HIDDEN_STATES}:
        return ()
    none = torch.empty(0, info.hidden_size, dtype=info.dtype, device=info.device)
    return (none,) * (1 + len(proposer.aux_layer_ids))


def named(proposer: type[Proposer], what: str, function: Callable[[], Made]) -> tuple[Made, list[str]]:
    """Call a proposer's own code; returns its result and the settings of the process that it changed, which are put back.

    Raises:
        PluginError: naming the proposer, for errors that are not ours.
    """
    try:
        return call_plugin(function)
    except (ConfigError, ModelError, PluginError, EngineError, MemoryError):
        raise
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise PluginError(
            f"proposer {proposer.name!r}: {what} raised {described(error)}{line_of(error)}"
        ) from error


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
    count: object = proposer.num_top_k
    if Capability.TARGET_TOP_K in given and not (type(count) is int and 0 < count <= _MOST_TOP_K):
        raise ConfigError(
            f"proposer {proposer.name!r} declares TARGET_TOP_K with num_top_k = {count!r}: give the number of ids, 1 to "
            f"{_MOST_TOP_K}"
        )
    beyond = given - type(proposer).capabilities
    if beyond:
        raise ConfigError(
            f"proposer {proposer.name!r} declares {_names(beyond)} for this configuration, "
            "which its class does not"
        )
    excluded = given & {Capability.TARGET_TOP_K, Capability.TARGET_CACHE}
    if Capability.BEFORE_VERDICT in given and excluded:
        raise ConfigError(
            f"proposer {proposer.name!r} declares BEFORE_VERDICT, and is then asked before the engine has the last tokens: "
            f"that excludes {_names(excluded)}"
        )
    if Capability.TREE in given and Capability.TREE not in sampler.capabilities:
        raise ConfigError(
            f"proposer {proposer.name!r} drafts trees in this configuration, and sampler {sampler.name!r} takes only chains: "
            "configure the method for chains, or use 'rejection_sample_method': 'strict' (a sampler that walks trees says so "
            "by Capability.TREE in its class)"
        )


def _names(capabilities: frozenset[Capability]) -> str:
    return ", ".join(sorted(capability.name for capability in capabilities))


def check_layers(proposer: Proposer, info: TargetInfo) -> None:
    """Raise if a loaded proposer names no layers of the target to read, or others than it has.

    Raises:
        ConfigError: naming the attribute, its value and what to give.
    """
    ids: object = proposer.aux_layer_ids
    is_wanted = Capability.AUX_HIDDEN_STATES in proposer.capabilities
    if not isinstance(ids, tuple | list) or not all(type(k) is int for k in ids) or (is_wanted and not ids):
        wrong = f"aux_layer_ids = {ids!r}: give the numbers of the layers whose inputs it reads, 0 to {info.num_layers}"
    elif ids and not is_wanted:
        wrong = f"aux_layer_ids = {ids!r} without Capability.AUX_HIDDEN_STATES: declare it, or leave them out"
    elif not all(0 <= k <= info.num_layers for k in ids):
        wrong = f"aux_layer_ids = {ids!r}, and the target's layers are 0 to {info.num_layers}, the last for its output"
    else:
        return
    raise ConfigError(f"proposer {proposer.name!r} has {wrong}")


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
