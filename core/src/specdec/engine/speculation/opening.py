"""Makes and loads the configured proposer; its own exceptions become errors that name it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import torch

from specdec import registry
from specdec.config import ResolvedSpeculation
from specdec.engine.metrics import EngineMetrics
from specdec.engine.speculation.capabilities import check_capabilities
from specdec.engine.speculation.delivery import Delivery
from specdec.engine.speculation.guard import ProposerGuard
from specdec.engine.speculation.speculation import Speculation
from specdec.errors import ConfigError, EngineError, ModelError, PluginError, described, is_interrupt, line_of
from specdec.interfaces.capability import Capability
from specdec.interfaces.draft_depth import DraftDepth
from specdec.interfaces.draft_slots import DraftSlots
from specdec.interfaces.proposer import Proposer
from specdec.interfaces.sampler import Sampler
from specdec.interfaces.target import TargetInfo
from specdec.registry.undisturbed import undisturbed

logger = logging.getLogger("specdec")

Made = TypeVar("Made")


def open_speculation(
    resolved: ResolvedSpeculation,
    info: TargetInfo,
    sampler: Sampler,
    load: Callable[[Proposer], None],
    *,
    is_strict: bool = False,
    is_adaptive: bool = False,
    draft_slots: DraftSlots | None = None,
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

    Raises:
        ConfigError: if the configuration does not fit the target or the sampler.
        ModelError: for weights that cannot be used.
        PluginError: if its constructor or `load` raises anything else.
    """
    config, made = resolved.config, resolved.proposer_class
    proposer, changed = _named(made, "__init__", lambda: made(resolved.proposer_config, info))
    check_capabilities(proposer, sampler)
    changed += _named(made, "load", lambda: load(proposer))[1]
    metrics = EngineMetrics()
    guard = ProposerGuard(
        proposer,
        info.vocab_size,
        is_fallback=config.on_proposer_error == "fallback",
        is_strict=is_strict,
        takes_trees=Capability.TREE in proposer.capabilities & sampler.capabilities,
        metrics=metrics,
    )
    guard.count_changes(changed)
    delivery = Delivery(
        no_states=no_states(proposer, info),
        is_on_device=Capability.ON_DEVICE in proposer.capabilities,
        device=info.device,
        num_top_k=proposer.num_top_k if Capability.TARGET_TOP_K in proposer.capabilities else 0,
        metrics=metrics,
        draft_slots=draft_slots if Capability.TARGET_CACHE in guard.capabilities else None,
    )
    k = config.num_speculative_tokens
    assert k is not None
    depth = None
    if is_adaptive if config.adaptive is None else config.adaptive:
        depth = _draft_depth(is_wanted=bool(config.adaptive))
    if depth is not None:
        depth.open(k, can_shorten=Capability.TREE not in proposer.capabilities)
    return Speculation(guard, delivery, k, config.cap, depth, metrics)


def _draft_depth(*, is_wanted: bool) -> DraftDepth | None:
    """Return the part for `adaptive`, or None if it is missing and only the default.

    Raises:
        ConfigError: if it is missing and wanted.
    """
    try:
        return registry.part("draft_depth", DraftDepth)()
    except PluginError as error:
        if is_wanted:
            raise ConfigError(f"speculative_config: 'adaptive': {error}") from error
        logger.warning(
            "drafts that do not pay are made all the same, which may be slower than none: %s", error
        )
        return None


def no_states(proposer: Proposer, info: TargetInfo) -> tuple[torch.Tensor, ...]:
    """Return empty states `[0, H]`: the final ones and one per aux layer; () if the proposer needs none."""
    if not proposer.capabilities & {Capability.HIDDEN_STATES, Capability.AUX_HIDDEN_STATES}:
        return ()
    none = torch.empty(0, info.hidden_size, dtype=info.dtype, device=info.device)
    return (none,) * (1 + len(proposer.aux_layer_ids))


def _named(proposer: type[Proposer], what: str, function: Callable[[], Made]) -> tuple[Made, list[str]]:
    try:
        return undisturbed(function)
    except (ConfigError, ModelError, PluginError, EngineError, MemoryError):
        raise
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise PluginError(
            f"proposer {proposer.name!r}: {what} raised {described(error)}{line_of(error)}"
        ) from error
