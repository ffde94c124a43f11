"""Runs a draft head over packed batches on its own paged cache."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch

from specdec.errors import ModelError
from specdec.runner.attention_backend import BackendFactory
from specdec.runner.binding import ATTENTION_NAME, AttentionContext, register, running
from specdec.runner.cached_runner import CachedRunner
from specdec.runner.chain import Chain, Chains, ChainWork
from specdec.runner.fused.head import FusedHead, fuse_head
from specdec.runner.fused.linear import speed_up_linears
from specdec.runner.graphs import ChainGraphs, PassGraphs, Recorder
from specdec.runner.head import DraftHead, HeadOutput
from specdec.runner.inference import in_inference_mode
from specdec.runner.kv_cache import KVCache
from specdec.runner.packed import PackedBatch, probe_batch
from specdec.runner.probe import AttentionProbe
from specdec.runner.sdpa import SdpaBackend
from specdec.runner.wide import WIDER, in_wider_arithmetic


class HeadRunner(CachedRunner):
    """One draft head, its KV cache and its attention.

    Args:
        head: the head, in evaluation mode.
        device: where it runs.
        max_context: maximum sequence length, in tokens.
        fused: whether stages of a known structure may run as one compiled call.
        make_backend, recorder: see `CachedRunner`.

    Raises:
        ModelError: if some of its layers do not call our attention.
    """

    def __init__(
        self,
        head: DraftHead,
        device: torch.device,
        max_context: int,
        *,
        fused: bool = True,
        make_backend: BackendFactory | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        super().__init__(device, max_context, make_backend, recorder)
        self.head = head
        register()
        head.config._attn_implementation = ATTENTION_NAME
        self.dtype = next(p.dtype for p in head.parameters() if p.is_floating_point())
        self._num_ids = head.config.get_text_config().vocab_size
        self.windows: dict[int, int | None] = {}
        for stage in range(head.num_stages):
            self._probe(stage)
        self.fused: list[FusedHead | None] = [
            fuse_head(self, stage) if fused else None for stage in range(head.num_stages)
        ]
        if fused:
            speed_up_linears(head)
            if device.type == "cpu":
                self.num_fallbacks = self.fused.count(None)
        if device.type == "cpu":
            self._run_own_forward()
        self._graphs: list[PassGraphs | None] = [None] * head.num_stages
        self._chain_graphs: ChainGraphs | None = None

    def allocate(self, num_slots: int) -> None:
        """See `CachedRunner.allocate`."""
        super().allocate(num_slots)
        self._graphs = [
            self.make_graphs(partial(self._run_whole, stage)) for stage in range(self.head.num_stages)
        ]
        if self.head.num_stages == 1:
            self._chain_graphs = self.make_chain_graphs(partial(self._run_whole, 0), self.max_context)

    @in_inference_mode
    def forward(self, batch: PackedBatch, features: torch.Tensor, stage: int = 0) -> HeadOutput:
        """Run a stage over a packed batch, writing its keys and values to the cache.

        Args:
            batch: the tokens.
            features: `[T, F]`; see `DraftHead.forward`.
            stage: index of the stage.
        """
        graphs, fused = self._graphs[stage], self.fused[stage]
        replayed = None if graphs is None else graphs.forward(batch, features.to(self.dtype))
        if replayed is not None:
            logits, carry = replayed
            return HeadOutput(logits if batch.logits_rows is None else logits[batch.logits_rows], carry)
        output = fused.forward(batch, features) if fused is not None else None
        return self.forward_reference(batch, features, stage) if output is None else output

    @property
    def num_recorded(self) -> int:
        """See `CachedRunner.num_recorded`: passes of each stage, and draft loops of single-stage heads."""
        num_stages = self.head.num_stages
        return super().num_recorded * (2 if num_stages == 1 else num_stages)

    def _run_whole(
        self, stage: int, batch: PackedBatch, features: torch.Tensor | None
    ) -> tuple[torch.Tensor, ...]:
        """Run a stage over a batch whose logits are all needed."""
        assert features is not None
        output = self.forward_reference(batch, features, stage)
        return output.logits, output.carry

    @in_inference_mode
    def forward_reference(self, batch: PackedBatch, features: torch.Tensor, stage: int = 0) -> HeadOutput:
        """Run a stage through its own `forward`."""
        return self._forward(batch, features, stage, AttentionContext(self.backend, batch, self.windows))

    @in_inference_mode
    def forward_wide(self, batch: PackedBatch, features: torch.Tensor, stage: int = 0) -> HeadOutput:
        """Run a stage with an empty cache in wider arithmetic; see `WIDER`."""
        backend = SdpaBackend(KVCache(len(batch.token_ids), self.device), self.max_context)
        with in_wider_arithmetic(self.head, WIDER.get(self.dtype, self.dtype)):
            return self._forward(batch, features, stage, AttentionContext(backend, batch, self.windows))

    @property
    def recorded(self) -> list[PassGraphs | ChainGraphs]:
        """See `CachedRunner.recorded`."""
        return [made for made in (*self._graphs, self._chain_graphs) if made is not None]

    @property
    def chain(self) -> Chain | None:
        """See `CachedRunner.chain`."""
        only = self.fused[0] if len(self.fused) == 1 else None
        compiled = None if only is None else only.chain
        return self._chain_graphs if compiled is None else compiled

    @in_inference_mode
    def draft_chain(self, output: HeadOutput, work: ChainWork) -> Chains:
        """Draft a chain of tokens for each row in one compiled call or recording; the last token is not run.

        Args:
            output: logits `[B, V']` and carry `[B, F]` of each row's last token; may be overwritten.
            work: what to draft.
        """
        assert self.chain is not None
        return self.chain.draft(output.logits, output.carry, work)

    def probe_features(self, num_rows: int) -> torch.Tensor:
        """Return random features `[num_rows, F]` of moderate size for probing a head."""
        generator = torch.Generator().manual_seed(0)
        return torch.randn(num_rows, self.head.feature_size, generator=generator).to(self.device, self.dtype)

    def probe_batch(self) -> PackedBatch:
        """Return a pass for probing a head."""
        return probe_batch(self._num_ids, self.max_context, self.device)

    def _forward(
        self, batch: PackedBatch, features: torch.Tensor, stage: int, context: AttentionContext
    ) -> HeadOutput:
        with running(context):
            states, carry = self.head(
                batch.token_ids[None], batch.positions[None], features[None].to(self.dtype), stage
            )
        rows = states[0] if batch.logits_rows is None else states[0][batch.logits_rows]
        return HeadOutput(self.head.project(rows, stage), carry[0])

    @in_inference_mode
    def _probe(self, stage: int) -> None:
        batch = self.probe_batch()
        probe = AttentionProbe(self.max_context)
        features = self.probe_features(len(batch.token_ids))
        self._forward(batch, features, stage, AttentionContext(self.backend, batch, probe=probe))
        if not probe.windows:
            raise ModelError(
                f"{type(self.head).__name__}: stage {stage} does not call transformers' attention interface, so it would "
                "run without the paged cache"
            )
        self.windows |= probe.windows

    @in_inference_mode
    def _run_own_forward(self) -> None:
        """Run each stage's own forward as steps do, so that no request compiles anything."""
        batch = self.probe_batch()
        batch = replace(
            batch, slots=batch.positions
        )  # unlike the probes', as passes of several requests have
        features = self.probe_features(len(batch.token_ids))
        for stage in range(self.head.num_stages):
            self.forward_reference(batch, features, stage)
