"""Builds an engine on every rank."""

from __future__ import annotations

from functools import partial

import torch

from specdec import EngineError, EngineOptions
from specdec.assembly import BuiltEngine, assemble, make_sampler
from specdec.config import ResolvedSpeculation
from specdec.interfaces import Capability
from specdec_runtime.parallel.engines import DriverEngine, WorkerEngine
from specdec_runtime.parallel.group import join_ranks
from specdec_runtime.parallel.messages import Event
from specdec_runtime.parallel.scorer import SplitScorer

_STATES = frozenset({Capability.HIDDEN_STATES, Capability.AUX_HIDDEN_STATES})


def build_on_ranks(options: EngineOptions, speculation: ResolvedSpeculation | None) -> BuiltEngine:
    """Load this rank's part of the target and, on rank 0, the proposer and the engine; called by all ranks.

    Raises:
        ConfigError: as `assemble` does, likewise the next two.
        PluginError: ditto.
        ModelError: ditto; also if the model cannot be split.
        EngineError: if another rank does not join, fails, or makes a different engine.
    """
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    ranks = join_ranks(options.tensor_parallel_size, torch.device(device).type)
    number = ranks.new_engine()
    needs_ends = speculation is not None and bool(_STATES & speculation.proposer_class.capabilities)
    scorer = SplitScorer(ranks, number, needs_ends=needs_ends)
    asked = repr((options, speculation and (speculation.config, speculation.proposer_config)))
    if ranks.is_leader:
        with ranks.leading(number):
            ranks.send(Event(number, "began", asked))
            built = assemble(options, speculation, scorer, partial(DriverEngine, ranks, number))
            ranks.send(Event(number, "built"))
        return built
    engine = WorkerEngine(ranks, number, scorer.models)
    if engine.until("began") != asked:
        raise ranks.fail(
            EngineError("was given other arguments of LLM than rank 0; all ranks must run the same script")
        )
    handle = scorer.load(options)
    engine.until("built")
    sampler = make_sampler(speculation)
    return BuiltEngine(engine, scorer, sampler, handle.info, scorer.tokenizer, speculation)
