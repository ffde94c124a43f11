"""Builds an engine from options and a speculative configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from specdec import registry
from specdec.config import ResolvedSpeculation, TargetFacts, default_sampler, parse_speculative_config
from specdec.config.checkpoint import read_mapping_of
from specdec.engine.capabilities import check_capabilities
from specdec.engine.caps import SpeculationCaps
from specdec.engine.commit import Committer
from specdec.engine.delivery import Delivery, no_states
from specdec.engine.engine import Engine
from specdec.engine.guard import ProposerGuard
from specdec.engine.kv_manager import KVManager
from specdec.engine.make_proposer import load_proposer, make_proposer
from specdec.engine.metrics import Counter, Gauge, Metric
from specdec.engine.pace import Pace
from specdec.engine.resumption import Resumption
from specdec.engine.scheduler import Scheduler
from specdec.engine.undisturbed import importing
from specdec.engine.warm_up import warm_up
from specdec.engine_options import EngineOptions
from specdec.interfaces.capability import Capability
from specdec.interfaces.proposer import Proposer
from specdec.interfaces.scorer import Scorer
from specdec.interfaces.target import TargetHandle, TargetInfo
from specdec.loading.target import LoadedTarget, locate

if TYPE_CHECKING:
    from specdec.interfaces.sampler import Sampler
    from specdec.parallel.engines import FollowingEngine


@dataclass(frozen=True)
class BuiltEngine:
    """An engine, its parts, and the facts about its target that `LLM` and `AsyncLLM` need."""

    engine: Engine | FollowingEngine
    scorer: Scorer
    sampler: Sampler
    info: TargetInfo
    tokenizer: PreTrainedTokenizerBase | None
    speculation: ResolvedSpeculation | None

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


def build_engine(options: EngineOptions, speculative_config: object) -> BuiltEngine:
    """Load the target and the proposer and connect them.

    Raises:
        ConfigError: for a configuration that is wrong.
        PluginError: for a method or sampler that cannot be loaded.
        ModelError: for a target that cannot be served correctly.
    """
    options = locate(options)
    facts = _facts(options)
    speculation = importing("the plugin", lambda: parse_speculative_config(speculative_config, target=facts))
    if options.tensor_parallel_size > 1:
        from specdec.parallel.build import build_on_ranks  # imports torch.distributed

        return build_on_ranks(options, speculation)
    return assemble(options, speculation, registry.scorer(options.scorer)(), Engine)


def assemble(
    options: EngineOptions,
    speculation: ResolvedSpeculation | None,
    scorer: Scorer,
    make_engine: Callable[..., Engine],
) -> BuiltEngine:
    """Load the target and the proposer and connect them.

    Args:
        options: the model named by its directory or hub id.
        speculation: the resolved configuration; None without speculation.
        scorer: not loaded yet.
        make_engine: takes the arguments of `Engine`.
    """
    handle = scorer.load(options)
    sampler = make_sampler(speculation)
    guard = delivery = pace = resume = None
    caps = SpeculationCaps(0)
    if speculation is not None:
        proposer, changed = make_proposer(speculation, handle.info)
        check_capabilities(proposer, sampler)
        changed += load_proposer(proposer, handle)
        guard, delivery = _contained(proposer, sampler, speculation, options, handle, scorer)
        guard.count_changes(changed)
        resume = Resumption(guard, delivery)
        k = speculation.config.num_speculative_tokens
        assert k is not None
        caps = SpeculationCaps(k, speculation.config.cap, needs_hidden=delivery.needs_hidden)
        if speculation.config.adaptive:
            pace = Pace(k, can_shorten=Capability.TREE not in proposer.capabilities)
    warm_up(sampler, handle.info, None if guard is None else guard.capabilities)
    scorer.allocate()
    kv = KVManager(
        scorer.cache, options.block_size, is_prefix_cached=options.enable_prefix_caching, resume=resume
    )
    engine = make_engine(
        scorer,
        sampler,
        Scheduler(
            kv,
            caps,
            options.max_num_seqs,
            options.max_num_batched_tokens,
            pace,
            has_priorities=options.scheduling_policy == "priority",
        ),
        Committer(kv, scorer.cache, delivery, None if guard is None else guard.name),
        guard,
        delivery,
        importing("an observer", registry.observers),
        pace,
    )
    return BuiltEngine(engine, scorer, sampler, handle.info, scorer.tokenizer, speculation)


def make_sampler(speculation: ResolvedSpeculation | None) -> Sampler:
    """Return the sampler, which verifies drafts or, without drafts, chooses tokens."""
    if speculation is None:
        sampler_class, config = default_sampler()
        return sampler_class(config)
    return speculation.sampler_class(speculation.sampler_config)


def _contained(
    proposer: Proposer,
    sampler: Sampler,
    speculation: ResolvedSpeculation,
    options: EngineOptions,
    handle: TargetHandle,
    scorer: Scorer,
) -> tuple[ProposerGuard, Delivery]:
    states = no_states(proposer, handle.info)
    if states:
        scorer.capture_hidden(proposer.aux_layer_ids)
    guard = ProposerGuard(
        proposer,
        handle.info.vocab_size,
        is_fallback=speculation.config.on_proposer_error == "fallback",
        is_strict=options.strict_drafts,
        takes_trees=Capability.TREE in proposer.capabilities & sampler.capabilities,
    )
    delivery = Delivery(
        no_states=states,
        is_on_device=Capability.ON_DEVICE in proposer.capabilities,
        device=handle.info.device,
    )
    return guard, delivery


def _facts(options: EngineOptions) -> TargetFacts:
    """Return the facts that the configuration is checked against before any weight is loaded."""
    config: dict[str, Any] = {}
    model = None
    if isinstance(options.model, LoadedTarget):
        config, model = options.model.model.config.to_dict(), options.model.path
    elif isinstance(options.model, PreTrainedModel):
        config = options.model.config.to_dict()
    elif isinstance(options.model, str):
        model = options.model
        path = Path(model) / "config.json"
        if path.exists():
            config = read_mapping_of(path)
    text = config.get("text_config") or config
    return TargetFacts(
        model=model,
        hf_config=config,
        vocab_size=text.get("vocab_size"),
        max_model_len=options.max_model_len or text.get("max_position_embeddings"),
        tensor_parallel_size=options.tensor_parallel_size,
        dtype=str(options.model.dtype if isinstance(options.model, LoadedTarget) else options.dtype),
    )
