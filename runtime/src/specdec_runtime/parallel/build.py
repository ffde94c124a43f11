"""Builds an engine over several ranks."""

from __future__ import annotations

import os
import weakref
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist

from specdec import ConfigError, EngineOptions
from specdec.assembly import BuiltEngine, assemble
from specdec.config import ResolvedSpeculation
from specdec.interfaces import Capability
from specdec_runtime.parallel.followers import Followers, open_store
from specdec_runtime.parallel.group import RankGroup
from specdec_runtime.parallel.scorer import SplitScorer

_STATES = frozenset({Capability.HIDDEN_STATES, Capability.AUX_HIDDEN_STATES})


def build_split(options: EngineOptions, speculation: ResolvedSpeculation | None) -> BuiltEngine:
    """Start the other ranks, load all parts of the target and, here, the proposer; the ranks end with the engine.

    Raises:
        ConfigError: as `assemble` does, likewise the next two.
        PluginError: ditto.
        ModelError: ditto; also if the model cannot be split.
        EngineError: if another rank does not join or fails.
    """
    size = options.tensor_parallel_size
    _check(options)
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type == "cuda" and torch.cuda.device_count() < size:
        raise ConfigError(
            f"LLM: tensor_parallel_size={size} needs a device for each rank, and {torch.cuda.device_count()} are visible"
        )
    needs_ends = speculation is not None and bool(_STATES & speculation.proposer_class.capabilities)
    store = open_store(size)
    followers = Followers(options, size, store.port, needs_ends=needs_ends)
    ranks = None
    try:
        followers.wait(store)
        ranks = RankGroup(0, size, device.type, store)
        built = assemble(options, speculation, SplitScorer(ranks, needs_ends=needs_ends))
    except BaseException:
        _end(ranks, followers)
        raise
    return replace(built, end=weakref.finalize(built.engine, _end, ranks, followers))


def _check(options: EngineOptions) -> None:
    """Refuse what cannot be split, before anything is started."""
    size = options.tensor_parallel_size
    if not isinstance(options.model, str | Path):
        raise ConfigError(
            f"LLM: tensor_parallel_size={size} splits a model while it is loaded: give model as a path or a hub id, "
            f"not a {type(options.model).__name__}"
        )
    if options.deterministic:
        raise ConfigError(
            f"LLM: deterministic=True needs fused layers, which a model split over tensor_parallel_size={size} ranks "
            "does not have: give one of the two"
        )
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise ConfigError(
            f"LLM: tensor_parallel_size={size} starts its processes itself: run the script without torchrun"
        )
    if dist.is_initialized():
        raise ConfigError(
            f"LLM: tensor_parallel_size={size} makes a process group of its own, and this process has one already: call "
            "shutdown() of an earlier LLM, or leave out tensor_parallel_size"
        )


def _end(ranks: RankGroup | None, followers: Followers) -> None:
    if ranks is not None:
        ranks.close()
    followers.end()
