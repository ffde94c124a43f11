"""Builds an engine from options and a speculative configuration."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specdec import registry
from specdec.assembly.opening import check_given, open_speculation
from specdec.assembly.warm_up import warm_up
from specdec.assembly.weights import TargetWeights
from specdec.config import ResolvedSpeculation, default_sampler, parse_speculative_config
from specdec.engine.commit import Committer
from specdec.engine.engine import Engine
from specdec.engine.kv_manager import KVManager
from specdec.engine.scheduler import Scheduler, most_logits_rows
from specdec.engine_options import EngineOptions
from specdec.interfaces.capability import Capability
from specdec.interfaces.proposer import Proposer
from specdec.interfaces.scorer import Scorer
from specdec.interfaces.target import TargetInfo
from specdec.metrics import Counter, Gauge, Metric
from specdec.registry.plugin_call import importing

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from specdec.interfaces.sampler import Sampler

logger = logging.getLogger("specdec")


@dataclass(frozen=True)
class BuiltEngine:
    """An engine, its parts, and the facts about its target that `LLM` and `AsyncLLM` need."""

    engine: Engine
    scorer: Scorer
    sampler: Sampler
    info: TargetInfo
    tokenizer: PreTrainedTokenizerBase | None
    speculation: ResolvedSpeculation | None
    weights: TargetWeights
    end: Callable[[], object] = lambda: None
    """Ends what runs beside this process for the engine; it may be called again."""

    def metrics(self) -> list[Metric]:
        """Return the counters of the engine and the scorer, and gauges of the current load."""
        counted = [Counter("specdec:" + name, value) for name, value in self.scorer.counts().items()]
        held = [Gauge("specdec:" + name, value) for name, value in self.scorer.levels().items()]
        num_running, num_waiting = self.engine.num_sequences
        now = [
            Gauge("vllm:num_requests_running", num_running),
            Gauge("vllm:num_requests_waiting", num_waiting),
            Gauge("vllm:kv_cache_usage_perc", self.engine.kv_cache_usage),
        ]
        return [*self.engine.metrics.snapshot(), *counted, *held, *now]


def adapts_by_default(sampler: Sampler) -> bool:
    """Return whether `adaptive` is on by default: where verdicts do not depend on drafts, and so not on measured times."""
    return sampler.is_coupled


def resolve_speculation(options: EngineOptions, speculative_config: object) -> ResolvedSpeculation | None:
    """Resolve a `speculative_config` against what is known of the target before its weights are loaded.

    Raises:
        ConfigError: for a configuration that is wrong.
        PluginError: for a method or sampler that cannot be loaded.
    """
    facts = registry.scorer(options.scorer).facts(options)
    return importing("the plugin", lambda: parse_speculative_config(speculative_config, target=facts))


def assemble(
    options: EngineOptions, resolved: ResolvedSpeculation | None, scorer: Scorer | None = None
) -> BuiltEngine:
    """Load the target and the proposer and connect them.

    Args:
        options: the model named by its directory or hub id.
        resolved: the speculative configuration; None without speculation.
        scorer: not loaded yet; None for the one that the options name.

    Raises:
        ConfigError: for a configuration that does not fit the target.
        PluginError: for a scorer, proposer or sampler that cannot be loaded.
        ModelError: for a target that cannot be served correctly.
    """
    if scorer is None:
        scorer = registry.scorer(options.scorer)()
    handle = scorer.load(options)
    sampler = make_sampler(resolved)
    speculation = None

    def load(proposer: Proposer) -> None:
        check_given(proposer, handle.info)
        proposer.load(handle)

    if resolved is not None:
        speculation = open_speculation(
            resolved,
            handle.info,
            sampler,
            load,
            is_strict=options.strict_drafts,
            is_adaptive=adapts_by_default(sampler),
            draft_slots=scorer.draft_slots,
        )
        if speculation.needs_hidden:
            scorer.capture_hidden(speculation.aux_layer_ids)
        if Capability.TREE in speculation.capabilities & sampler.capabilities:
            scorer.num_tree_nodes = speculation.num_speculative_tokens
    drafts, most = None, 0
    if speculation is not None:
        drafts, most = speculation.capabilities, speculation.num_speculative_tokens
    warm_up(sampler, handle.info, drafts, most)
    scorer.max_logits_rows = most_logits_rows(options.max_num_seqs, most, options.max_num_batched_tokens)
    scorer.allocate()
    kv = KVManager(
        scorer.cache,
        options.block_size,
        is_prefix_cached=options.enable_prefix_caching,
        resume=None if speculation is None else speculation.resume,
        states=scorer.states,
        make_pool=scorer.slot_pool,
    )
    scheduler = Scheduler(
        kv,
        options.max_num_seqs if scorer.states is None else scorer.states.max_requests,
        options.max_num_batched_tokens,
        speculation,
        has_priorities=options.scheduling_policy == "priority",
    )
    committer = Committer(kv, scorer.cache, speculation)
    observers = importing("an observer", registry.observers)
    is_overlapped = _overlaps_steps(options, scorer)
    engine = Engine(
        scorer, sampler, scheduler, committer, speculation, observers, is_overlapped=is_overlapped
    )
    weights = TargetWeights(scorer, scheduler, engine.proposer)
    return BuiltEngine(engine, scorer, sampler, handle.info, scorer.tokenizer, resolved, weights)


def make_sampler(speculation: ResolvedSpeculation | None) -> Sampler:
    """Return the sampler, which verifies drafts or, without drafts, chooses tokens."""
    if speculation is None:
        sampler_class, config = default_sampler()
        return sampler_class(config)
    return speculation.sampler_class(speculation.sampler_config)


def _overlaps_steps(options: EngineOptions, scorer: Scorer) -> bool:
    """Return whether steps are overlapped: as `async_scheduling` says, else on devices."""
    wanted = options.async_scheduling
    if wanted and not scorer.supports_device_nodes:
        logger.warning(
            "async_scheduling=True changes nothing: %s waits for the tokens of every step",
            type(scorer).__name__,
        )
    return scorer.supports_device_nodes and (scorer.cache.device.type != "cpu" if wanted is None else wanted)
