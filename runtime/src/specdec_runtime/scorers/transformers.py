"""The default scorer: a `transformers` model on a paged cache."""

from __future__ import annotations

import gc
import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakKeyDictionary, WeakSet

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedTokenizerBase

from specdec import EngineOptions, LoRARequest
from specdec.config import TargetFacts
from specdec.engine import SlotPool
from specdec.errors import ConfigError
from specdec.interfaces import (
    DraftSlots,
    MakeForm,
    PassMemory,
    RowBlock,
    ScoreBatch,
    Scorer,
    Scores,
    TargetHandle,
    Tell,
    Weights,
)
from specdec.logits import p_logits_of
from specdec_runtime.backends.attention import TORCH, check_name, choose_attention
from specdec_runtime.backends.forms import is_fast
from specdec_runtime.interfaces import PassLimits
from specdec_runtime.interfaces.attention import AttentionFactory, AttentionNeeds
from specdec_runtime.interfaces.cache_reader import CacheReader
from specdec_runtime.interfaces.forward import HostRows, PackedBatch, Segment
from specdec_runtime.interfaces.kv_cache import KVCache
from specdec_runtime.loading import new_weights
from specdec_runtime.loading.checkpoint import SafetensorsReader
from specdec_runtime.loading.draft import alias, load_draft
from specdec_runtime.loading.target import LoadedTarget, known_facts, load_target
from specdec_runtime.loading.versions import newer_versions_named
from specdec_runtime.lora import Adapters, LoadedAdapter
from specdec_runtime.models import input_embedding, output_head
from specdec_runtime.models.spread import near, offloaded, places
from specdec_runtime.runner import ModuleRunner, SdpaAttention
from specdec_runtime.runner.runner import added
from specdec_runtime.scorers.memory import num_slots, step_bytes
from specdec_runtime.scorers.runner_factory import RunnerFactory
from specdec_runtime.scorers.target_info import info_of

logger = logging.getLogger("specdec")


_SCORERS: WeakKeyDictionary[nn.Module, WeakSet[TransformersScorer]] = WeakKeyDictionary()
"""Of each model those that run it."""


class TransformersScorer(Scorer):
    """Packs prompt chunks and verification rows into one pass `[1, T]` over the target."""

    name: ClassVar[str] = "transformers"
    supports_device_nodes: ClassVar[bool] = True

    @classmethod
    def facts(cls, options: EngineOptions) -> TargetFacts:
        """Return what the configuration of the target says."""
        return known_facts(options)

    @newer_versions_named()
    def load(self, options: EngineOptions) -> TargetHandle:
        """Load the target and check that it can be served."""
        check_name(options.attention_backend)
        self.options = options
        self.target = target = load_target(options)
        self.pass_memory = PassMemory.on(target.device)
        attention = self._attention(is_invariant=options.deterministic)
        self.runner = self.make_runner(
            target,
            is_fused=not options.enforce_eager,
            make_attention=attention,
            is_invariant=options.deterministic,
        )
        self.states = self.runner.states
        if options.serves_adapters:
            if is_fast(self.runner.forms[0]):
                logger.warning(
                    "adapters: passes with rows of one run by the model's own forward, on the CPU two to four times slower; "
                    "specdec:adapter_passes counts them"
                )
            self.adapters = Adapters(self.runner.linear_maps(), self.runner.dtype, options)
        self.draft_slots = DraftSlots()
        self._has_reader = False
        if options.deterministic:
            attention = self._attention(is_invariant=False)  # drafts are only guesses
        self._runner_factory = RunnerFactory(
            options, target.device, target.max_model_len, attention, self.pass_memory
        )
        path = Path(target.path) if target.path is not None else None
        self._info = info_of(target, options, has_states=self.states is not None)
        is_lent = not places(target.model) and self.states is None
        self._handle = TargetHandle(
            info=self._info,
            path=target.path,
            revision=options.revision,
            config=target.model.config,
            embed_tokens=near(input_embedding(target.model), target.model),
            lm_head=near(output_head(target.model), target.model),
            checkpoint=SafetensorsReader(path) if path is not None and path.is_dir() else None,
            tokenizer=target.tokenizer,
            pass_memory=self.pass_memory,
            runner_factory=self._runner_factory.make_runner,
            model_loader=partial(load_draft, options, target),
            target_runner_factory=self._lend_cache if is_lent else None,
            cache_reader_factory=self._lend_rows if is_lent else None,
        )
        _SCORERS.setdefault(target.model, WeakSet()).add(self)
        return self._handle

    def make_runner(self, target: LoadedTarget, **settings: Any) -> ModuleRunner:
        """Return the target's runner; `settings` are those of `ModuleRunner`."""
        return ModuleRunner(
            target.model, target.device, target.max_model_len, pass_memory=self.pass_memory, **settings
        )

    def allocate(self) -> None:
        """Allocate the KV caches: as many slots for each of the proposer's models as for the target."""
        runners = self._runners
        reserved = sum(runner.reserved_bytes for runner in runners) + self._runner_factory.state_bytes
        needed = partial(step_bytes, self.runner, self.options, reserved, self.max_logits_rows)
        bytes_per_token = sum(runner.bytes_per_token for runner in runners)
        spread = self.runner.cache.bytes_by_device if places(self.target.model) else {}
        slots = num_slots(self.options, self.target, bytes_per_token, needed, spread, self._allocate_states)
        self.runner.num_tree_nodes = self.num_tree_nodes
        self.runner.allocate(slots)
        self._runner_factory.allocate(slots)
        self.slot_pool = self._offered_pool()
        self._prepare()

    def _prepare(self) -> None:
        """Let all runners record or compile what passes need."""
        size = self.options.max_num_batched_tokens
        limits = PassLimits(self.options.max_num_seqs, size, self.max_logits_rows or size)
        for runner in self._runners:
            runner.prepare(limits)

    def _offered_pool(self) -> type[SlotPool] | None:
        """Return the pool that the attention of all who read the target's cache offers; None if one reads runs."""
        readers = [runner for runner in self._runners if runner.cache is self.cache]
        pool, *others = {getattr(runner.attention, "slot_pool", None) for runner in readers}
        forms = [form for runner in readers for stage in runner.forms for form in stage]
        alone = [type(form).__name__ for form in forms if form.is_fast and not form.uses_attention]
        alone += ["a layer that keeps states"] * (self.states is not None) + ["attention"] * bool(others)
        alone += ["the proposer"] * self._has_reader
        if self.options.enable_prefix_caching and alone and (pool or others):
            logger.warning("cached prefixes are copied, not shared: %s reads runs of the cache", alone[0])
        return None if alone else pool

    def _allocate_states(self, budget: int | None) -> int:
        """Allocate the states of as many requests as half of a budget has room for; returns the bytes they take."""
        states, options = self.runner.states, self.options
        if states is None:
            return 0
        block_size = options.block_size if options.enable_prefix_caching else 0
        size = states.bytes_per_request(is_prefix_cached=options.enable_prefix_caching)
        count = (
            options.max_num_seqs if budget is None else min(options.max_num_seqs, max(1, budget // 2 // size))
        )
        if count < options.max_num_seqs:
            logger.warning(
                "max_num_seqs=%d: memory has room for the recurrent states of %d requests, %.0f MiB each, and no more run at "
                "once; kv_cache_memory_bytes or gpu_memory_utilization make room", options.max_num_seqs, count, size / 2**20,
            )  # fmt: skip
        states.allocate(count, block_size, lag=int(self.runner.wanted.final))
        return count * size

    def update_weights(self, weights: Weights, tell: Tell) -> None:
        """Write weights in place of the target's."""
        self._check_changeable("update_weights")
        new, folder = new_weights.read_weights(weights, self.target.model, self.options)
        ready = new_weights.checked_weights(self.target.model, new)
        tell(None)
        new_weights.write_weights(ready)
        self.runner.agreed.clear()
        handle = self._handle
        self._renew(tell, handle if folder is None else replace(handle, checkpoint=SafetensorsReader(folder)))

    def sleep(self, level: int, tell: Tell) -> None:
        """Free the cache and what was made of the weights, which move to the host or are dropped."""
        self._check_changeable("sleep")
        target = self.target
        if target.path is None and level == 2:
            raise ConfigError(
                "LLM.sleep: level=2 would drop the weights of a model that is yours: use level=1"
            )
        tell(None)
        self._runner_factory.begin()
        self.runner.let_go()
        if level == 2:
            new_weights.drop_weights(target.model)
        elif target.path is not None:
            new_weights.move_weights(target.model, torch.device("cpu"))
        gc.collect()
        if target.device.type == "cuda":
            torch.cuda.empty_cache()

    def wake_up(self, tell: Tell) -> None:
        """Bring weights and cache back."""
        self._renew(tell, self._handle)

    def _renew(self, tell: Tell, handle: TargetHandle) -> None:
        """Make again what was made of the weights, and tell the proposer; `handle` is kept if it follows."""
        if self.target.path is not None:
            new_weights.move_weights(self.target.model, self.target.device)
        self.runner.renew()
        self._runner_factory.begin()
        if tell(handle):
            self._handle = handle
        self._runner_factory.allocate(self.cache.num_slots)
        self._prepare()

    def _check_changeable(self, what: str) -> None:
        for name, value in (
            ("tensor_parallel_size", self.options.tensor_parallel_size > 1),
            ("device_map", bool(places(self.target.model))),
        ):
            if value:
                raise ConfigError(
                    f"LLM.{what}: {name}={getattr(self.options, name)!r}: weights on several devices cannot be changed, leave "
                    f"{name} out"
                )
        engines = _SCORERS[self.target.model]
        if len(engines) > 1:
            gc.collect()  # of one that was shut down some parts refer to each other
        if len(engines) > 1:
            raise ConfigError(
                f"LLM.{what}: {len(engines)} engines share this model, and each prepares its weights for itself: shut the "
                "others down and drop them, or give each a model of its own"
            )

    def counts(self) -> dict[str, int]:
        """Return counts of fallbacks and of graph replays, for the target and the proposer."""
        return added(runner.counts() for runner in self._runners)

    def levels(self) -> dict[str, int]:
        """Return the size of the KV caches in tokens and bytes, and number and bytes of recorded graphs, if there are any."""
        slots, size = self.runner.cache.num_slots, sum(runner.bytes_per_token for runner in self._runners)
        caches = {"kv_cache_tokens": slots, "kv_cache_bytes": slots * size}
        return caches | added(runner.levels() for runner in self._runners)

    def load_adapter(self, request: LoRARequest) -> LoadedAdapter:
        """Return an adapter in PEFT's format, loading it if it is not."""
        return self.adapters.load(request)

    def _lend_cache(self, make_form: MakeForm) -> ModuleRunner:
        assert self.draft_slots is not None
        form = make_form(alias(self.target.model))
        return self._runner_factory.make_target_runner(form, self.runner, self.draft_slots)

    def _lend_rows(self) -> CacheReader:
        assert self.draft_slots is not None
        self._has_reader = True
        return CacheReader(lambda: self.cache, self.draft_slots)

    @property
    def _runners(self) -> list[ModuleRunner]:
        return [self.runner, *self._runner_factory.runners]

    def _attention(self, *, is_invariant: bool) -> AttentionFactory:
        options, target = self.options, self.target
        if places(target.model):
            check_spread(options, target)
            return SdpaAttention
        needs = AttentionNeeds(
            target.device, target.model.dtype, is_invariant, options.attention_backend != "auto"
        )
        return choose_attention(options.attention_backend, needs, target.model.config, SdpaAttention)

    @property
    def cache(self) -> KVCache:
        """The target's cache."""
        return self.runner.cache

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase | None:
        """The target's tokenizer."""
        return self.target.tokenizer

    def capture_hidden(self, aux_layer_ids: Sequence[int]) -> None:
        """Return final hidden states, and the inputs of these layers, with every pass from now on."""
        self.runner.capture_hidden(aux_layer_ids)

    def score(self, batch: ScoreBatch) -> Scores:
        """Run the pass of one step."""
        packed, blocks = pack(batch, self.runner.device)
        change, is_cut = p_logits_of(
            blocks, self._info.vocab_size, self.runner.device, batch.transfer, is_cut=batch.is_cut
        )
        output = self.runner.forward(packed)
        if self.on_pass is not None:
            self.on_pass(partial(self.runner.forward, packed))
        num_prompts = sum(len(row.prompt_rows) for row in batch.rows if row.chunk)
        logits = output.logits[:-num_prompts] if num_prompts else output.logits
        return Scores(
            logits=logits.float() if change is None else change(logits),
            raw_logits=logits,
            prompt_logits=output.logits[-num_prompts:] if num_prompts else None,
            hidden_states=output.hidden_states,
            aux_hidden_states=output.aux_hidden_states,
            is_cut=is_cut,
        )


def pack(batch: ScoreBatch, device: torch.device) -> tuple[PackedBatch, list[RowBlock]]:
    """Pack a step: for each running sample its chunk of committed tokens, then its drafted nodes.

    Returns:
        the pass, and the logits rows of each sample that gets a token, after which those for prompt log probabilities follow.
    """
    drafted = batch.device_nodes if any(row.num_nodes for row in batch.rows) else None
    segments: list[Segment] = []
    blocks: list[RowBlock] = []
    tokens, positions, slots = list[int](), list[int](), list[int]()
    logits_rows, prompt_rows = list[int](), list[int]()
    first, has_adapters = 0, False
    for row in batch.rows:
        sequence, start, chunk, parents = row.sequence, row.start, row.chunk, row.parents
        if chunk == 0:
            continue
        count = chunk + row.num_nodes
        if batch.behind is None:
            tokens += sequence.token_ids[start : start + chunk].tolist()
        else:
            tokens.append(0)  # the pass finds it on the device
        if drafted is None:
            tokens += row.nodes
        else:
            place = -1 - len(blocks) * drafted.width
            tokens += range(place, place - row.num_nodes, -1)
        segment = Segment(first, count, sequence.first_slot, start, owner=sequence, num_drafted=row.num_nodes)
        if sequence.adapter is not None:
            segment.adapter, has_adapters = sequence.adapter, True
        slots += range(sequence.first_slot + start, sequence.first_slot + start + count)
        if parents is not None and row.nodes:
            positions += segment.set_parents(parents).tolist()
        else:
            positions += range(start, start + count)
        segments.append(segment)
        prompt_rows += range(first + row.prompt_rows.start - start, first + row.prompt_rows.stop - start)
        if row.is_sampled:
            text = sequence.token_ids, sequence.num_prompt_tokens, drafted, len(blocks)
            blocks.append(RowBlock(sequence.params, row.nodes, parents, sequence.rules, *text))
            logits_rows += range(first + chunk - 1, first + count)
        first += count
    has_all = len(logits_rows) == first and not prompt_rows
    wanted = None if has_all else np.array(logits_rows + prompt_rows, np.int64)
    ids, places, where = (np.array(each, np.int64) for each in (tokens, positions, slots))
    if device.type == "cpu" and drafted is None and batch.behind is None:  # which shares the host's memory
        slots_there = None if len(segments) == 1 else torch.from_numpy(where)
        logits_there = None if wanted is None else torch.from_numpy(wanted)
        tensors = torch.from_numpy(ids), torch.from_numpy(places)
        packed = PackedBatch(*tensors, segments, slots_there, logits_there)
    else:
        host = HostRows(ids, places, where, wanted)
        packed = PackedBatch.of_rows(host, segments, device, drafted, batch.transfer, batch.behind)
    packed.has_adapters = has_adapters
    return packed, blocks


def check_spread(options: EngineOptions, target: LoadedTarget) -> None:
    """Check the options of a model on several devices, and warn about offloaded weights.

    Raises:
        ConfigError: if an attention is requested that runs on one device.
    """
    if options.attention_backend not in ("auto", TORCH):
        raise ConfigError(
            f"LLM: attention_backend={options.attention_backend!r} runs on one device, and device_map spreads the model over "
            "several: leave it out"
        )
    slow = offloaded(target.model)
    if slow:
        logger.warning(
            "device_map keeps weights on %s, from where every pass fetches them: a step takes as long as reading them",
            " and ".join(sorted(slow)),
        )
