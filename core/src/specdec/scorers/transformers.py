"""The default scorer: a `transformers` model on core's paged cache."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from transformers import PreTrainedTokenizerBase

from specdec.engine_options import EngineOptions
from specdec.errors import ConfigError
from specdec.interfaces.draft import Draft
from specdec.interfaces.score_batch import ScoreBatch
from specdec.interfaces.scorer import Scorer, Scores
from specdec.interfaces.target import TargetHandle, TargetInfo
from specdec.loading.checkpoint import SafetensorsReader
from specdec.loading.draft import load_draft
from specdec.loading.target import LoadedTarget, end_of_text_ids, fingerprint, load_target
from specdec.logits import p_logits
from specdec.runner.attention_backend import backend_factory, choose_backend, missing_kernels
from specdec.runner.attention_probe import disagreement
from specdec.runner.cached_runner import CachedRunner
from specdec.runner.fused.invariance import Invariance
from specdec.runner.graphs import ChainGraphs, CudaRecorder, PassGraphs, Recorder
from specdec.runner.kv_cache import KVCache
from specdec.runner.layers import input_embedding, output_head
from specdec.runner.model_runner import ModelRunner
from specdec.runner.spread import SpreadBackend, near, offloaded, places
from specdec.scorers.lending import Lender
from specdec.scorers.memory import num_slots, step_bytes
from specdec.scorers.packing import pack

logger = logging.getLogger("specdec")


class TransformersScorer(Scorer):
    """Packs prompt chunks and verification rows into one pass `[1, T]` over the target."""

    name: ClassVar[str] = "transformers"

    def load(self, options: EngineOptions) -> TargetHandle:
        """Load the target and check that it can be served."""
        self.options = options
        self.target = target = load_target(options)
        backend = choose_backend(
            spread_attention(options, target) or options.attention_backend,
            target.device,
            partial(disagreement, target.device, target.model.dtype, target.model.config),
        )
        invariance = _invariance(options, backend, target.device)
        self._recorder = _recorder(options, backend, target.device)
        self.runner = self.make_target_runner(
            target,
            fused=not options.enforce_eager,
            make_backend=SpreadBackend
            if places(target.model)
            else backend_factory(backend, is_invariant=options.deterministic),
            invariance=invariance,
            recorder=self._recorder,
        )
        self._lender = Lender(options, target.device, target.max_model_len, backend, self._recorder)
        path = Path(target.path) if target.path is not None else None
        return TargetHandle(
            info=_info(target, options),
            path=target.path,
            revision=options.revision,
            config=target.model.config,
            embed_tokens=near(input_embedding(target.model), target.model),
            lm_head=near(output_head(target.model), target.model),
            checkpoint=SafetensorsReader(path) if path is not None and path.is_dir() else None,
            tokenizer=target.tokenizer,
            runner_factory=self._lender.make_runner,
            head_runner_factory=self._lender.make_head_runner,
            model_loader=partial(load_draft, options, target),
        )

    def make_target_runner(self, target: LoadedTarget, **settings: Any) -> ModelRunner:
        """Return the target's runner; `settings` are those of `ModelRunner`."""
        return ModelRunner(target.model, target.device, target.max_model_len, **settings)

    def allocate(self) -> None:
        """Allocate the KV caches: as many slots for each of the proposer's models as for the target."""
        runners = self._runners
        num_recorded = sum(runner.num_recorded for runner in runners)
        needed = partial(step_bytes, self.runner, self.options, num_recorded)
        bytes_per_token = sum(runner.bytes_per_token for runner in runners)
        spread = self.runner.cache.bytes_by_device if places(self.target.model) else {}
        slots = num_slots(self.options, self.target, bytes_per_token, needed, spread)
        self.runner.allocate(slots)
        self._lender.allocate(slots)

    def counts(self) -> dict[str, int]:
        """Return counts of fallbacks and of graph replays, for the target and the proposer."""
        fallbacks = {"unfused_models": sum(runner.num_fallbacks for runner in self._runners)}
        graphs = self._graphs
        if not graphs:
            return fallbacks
        return fallbacks | {
            "graph_replays": sum(made.num_replays for made in graphs),
            "graph_misses": sum(made.num_plain for made in graphs),
            "graph_failures": sum(made.failure is not None for made in graphs),
        }

    def levels(self) -> dict[str, int]:
        """Return the number of recorded graphs and their memory in bytes, if there are any."""
        graphs = self._graphs
        if not graphs:
            return {}
        return {
            "graph_recordings": sum(made.num_recordings for made in graphs),
            "graph_bytes": sum(made.num_bytes for made in graphs),
        }

    @property
    def _runners(self) -> list[CachedRunner]:
        return [self.runner, *self._lender.runners]

    @property
    def _graphs(self) -> list[PassGraphs | ChainGraphs]:
        return [made for runner in self._runners for made in runner.recorded]

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
        self.runner.capture_hidden(True, aux_layer_ids)

    def score(self, batch: ScoreBatch, draft: Draft) -> Scores:
        """Run the pass of one step."""
        packed = pack(batch, draft, self.runner.device)
        output = self.runner.forward(packed.batch)
        if self.on_pass is not None:
            self.on_pass(partial(self.runner.forward, packed.batch))
        num_rows = len(output.logits) - packed.num_prompt_rows
        return Scores(
            logits=p_logits(output.logits[:num_rows], packed.blocks),
            row_starts=packed.row_starts,
            raw_logits=output.logits[:num_rows],
            first_rows=packed.first_rows,
            prompt_logits=output.logits[num_rows:] if packed.num_prompt_rows else None,
            hidden_states=output.hidden_states,
            aux_hidden_states=output.aux_hidden_states,
        )


def spread_attention(options: EngineOptions, target: LoadedTarget) -> str | None:
    """Return the attention backend of a model on several devices; None for a model on one.

    Raises:
        ConfigError: if another one is requested.
    """
    if not places(target.model):
        return None
    if options.attention_backend == "triton":
        raise ConfigError(
            "LLM: attention_backend='triton' runs on one device, and device_map spreads the model over several: leave it out"
        )
    slow = offloaded(target.model)
    if slow:
        logger.warning(
            "device_map keeps weights on %s, from where every pass fetches them: a step takes as long as reading them",
            " and ".join(sorted(slow)),
        )
    return "sdpa"


def _recorder(options: EngineOptions, backend: str, device: torch.device) -> Recorder | None:
    """Return the graph recorder; None unless the attention reads all its inputs from tensors."""
    if options.enforce_eager or backend != "triton" or device.type != "cuda":
        return None
    return CudaRecorder(device)


def _invariance(options: EngineOptions, backend: str, device: torch.device) -> Invariance:
    """Return how the target makes rows batch-invariant."""
    if not options.deterministic:
        return Invariance.NONE
    if backend == "triton":
        return Invariance.KERNELS
    if device.type == "cpu":
        return Invariance.COMPILED
    raise ConfigError(
        f"LLM: deterministic=True on {str(device)!r} needs batch-invariant kernels: "
        f"{missing_kernels() or 'they run on CUDA devices, with attention_backend=auto or triton'}"
    )


def _info(target: LoadedTarget, options: EngineOptions) -> TargetInfo:
    config = target.model.config.get_text_config()
    head = output_head(target.model)
    rows = getattr(head, "out_features", None) or config.vocab_size
    return TargetInfo(
        vocab_size=int(rows),
        hidden_size=config.hidden_size,
        num_layers=config.num_hidden_layers,
        max_model_len=target.max_model_len,
        dtype=target.dtype,
        device=target.device,
        eos_token_ids=end_of_text_ids(target.model, target.tokenizer),
        tokenizer_fingerprint=fingerprint(target.tokenizer),
        max_num_seqs=options.max_num_seqs,
        prefix_block_size=options.block_size if options.enable_prefix_caching else 0,
    )
