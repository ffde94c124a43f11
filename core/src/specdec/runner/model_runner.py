"""Runs one model over packed batches on its own paged cache: the target, a draft model, a head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import nn

from specdec.errors import ModelError
from specdec.runner.attention_backend import BackendFactory
from specdec.runner.binding import ATTENTION_NAME, AttentionContext, register, running
from specdec.runner.cached_runner import CachedRunner
from specdec.runner.chain import Chain, Chains, ChainWork
from specdec.runner.fused import FusedModel, fuse
from specdec.runner.fused.invariance import Invariance
from specdec.runner.graphs import ChainGraphs, PassGraphs, Recorder
from specdec.runner.inference import in_inference_mode
from specdec.runner.kv_cache import KVCache
from specdec.runner.layers import decoder_layers, keeps_logits_rows, output_head
from specdec.runner.packed import ForwardOutput, PackedBatch, probe_batch
from specdec.runner.probe import AttentionProbe
from specdec.runner.sdpa import SdpaBackend
from specdec.runner.wide import WIDER, in_wider_arithmetic

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class ModelRunner(CachedRunner):
    """One model, its KV cache and its attention.

    Args:
        model: a causal language model of `transformers`, unmodified but for its attention implementation.
        device: where it runs.
        max_context: maximum sequence length, in tokens.
        fused: whether layers of a known structure may run as fused operations (same arithmetic, fewer calls).
        make_backend: see `CachedRunner`.
        invariance: whether logits must be batch-invariant (bit-identical in any pass); with `fused` only.
        recorder: see `CachedRunner`.
        is_draft: whether this is a draft model; its draft loops are then recorded as well.

    Raises:
        ModelError: if some of the model's layers do not call our attention and would run without a cache, or if
            the requested batch invariance is not possible.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        device: torch.device,
        max_context: int,
        *,
        fused: bool = True,
        make_backend: BackendFactory | None = None,
        invariance: Invariance = Invariance.NONE,
        recorder: Recorder | None = None,
        is_draft: bool = False,
    ) -> None:
        super().__init__(device, max_context, make_backend, recorder)
        self.model = model
        self._is_draft = is_draft
        self._chain_graphs: ChainGraphs | None = None
        self.layers = decoder_layers(model)
        self._keeps_rows = keeps_logits_rows(model)
        self._aux_ids: tuple[int, ...] = ()
        self._wants_hidden = False
        from transformers import PreTrainedModel  # a base class that takes seconds to import

        # The modules that may return the final hidden state; which of them a model calls differs (OPT: the inner decoder).
        self._bodies = [m for m in model.modules() if isinstance(m, PreTrainedModel) and m is not model]
        register()
        model.set_attn_implementation(ATTENTION_NAME)
        self._probe()
        self._graphs: PassGraphs | None = None
        self.fused: FusedModel | None = None
        if fused:
            self.fused = fuse(model, self, invariance)
            self.num_fallbacks = int(self.fused is None)
        if self.fused is not None and recorder is not None:
            self.fused.hold_positions(max_context)
        if device.type == "cpu":
            self._run_other_forms()

    def capture_hidden(self, wants_hidden: bool, aux_layer_ids: Sequence[int] = ()) -> None:
        """Choose which hidden states every later pass returns.

        Raises:
            ModelError: if the model has no layer of a given id.
        """
        wrong = [k for k in aux_layer_ids if not 0 <= k <= len(self.layers)]
        if wrong:
            raise ModelError(f"aux layer ids {wrong} are not in 0..{len(self.layers)}")
        self._wants_hidden = wants_hidden
        self._aux_ids = tuple(aux_layer_ids)
        self._graphs = self.make_graphs(self._run_whole)

    def allocate(self, num_slots: int) -> None:
        """See `CachedRunner.allocate`."""
        super().allocate(num_slots)
        self._graphs = self.make_graphs(self._run_whole)
        if self._is_draft:
            known = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
            most = min(known or self.max_context, self.max_context)
            self._chain_graphs = self.make_chain_graphs(self._run_whole, most)

    @property
    def num_recorded(self) -> int:
        """See `CachedRunner.num_recorded`: passes, and draft loops."""
        return super().num_recorded * (2 if self._is_draft else 1)

    @in_inference_mode
    def forward(self, batch: PackedBatch) -> ForwardOutput:
        """Run the model over a packed batch, writing its keys and values to the cache."""
        outputs = None if self._graphs is None else self._graphs.forward(batch)
        if outputs is None:
            return self._run(batch)
        logits, *states = outputs
        return ForwardOutput(
            logits=logits if batch.logits_rows is None else logits[batch.logits_rows],
            hidden_states=states.pop(0) if self._wants_hidden else None,
            aux_hidden_states=tuple(states),
        )

    def _run_whole(self, batch: PackedBatch, features: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        """Run a pass whose logits are all needed; returns all outputs of the pass."""
        output = self._run(batch)
        hidden = () if output.hidden_states is None else (output.hidden_states,)
        return (output.logits, *hidden, *output.aux_hidden_states)

    def _run(self, batch: PackedBatch) -> ForwardOutput:
        if self.fused is not None:
            return self.fused.forward(batch, self._wants_hidden, self._aux_ids)
        return self.forward_reference(batch)

    @property
    def recorded(self) -> list[PassGraphs | ChainGraphs]:
        """See `CachedRunner.recorded`."""
        return [made for made in (self._graphs, self._chain_graphs) if made is not None]

    @property
    def chain(self) -> Chain | None:
        """See `CachedRunner.chain`."""
        compiled = None if self.fused is None else self.fused.chain
        return self._chain_graphs if compiled is None else compiled

    @in_inference_mode
    def draft_chain(self, logits: torch.Tensor, work: ChainWork) -> Chains:
        """Draft a chain of tokens for each row in one compiled call or recording; the last token is not run.

        Equivalent to alternating `forward` and token selection, without the overhead per step. The tokens are the
        same up to rounding of the logits.

        Args:
            logits: `[B, V]` of each row's last token; may be overwritten.
            work: what to draft.
        """
        assert self.chain is not None
        return self.chain.draft(logits, None, work)

    @in_inference_mode
    def forward_reference(self, batch: PackedBatch) -> ForwardOutput:
        """Run the model through its own `forward`, even if it has a fused form."""
        return self._forward(batch, AttentionContext(self.backend, batch, self.windows))

    @in_inference_mode
    def forward_wide(self, batch: PackedBatch) -> torch.Tensor:
        """Return the logits `[R, V]` of a pass with an empty cache in wider arithmetic; see `WIDER`."""
        backend = SdpaBackend(KVCache(len(batch.token_ids), self.device), self.max_context)
        with in_wider_arithmetic(self.model, WIDER.get(self.dtype, self.dtype)):
            return self._forward(batch, AttentionContext(backend, batch, self.windows)).logits

    @property
    def dtype(self) -> torch.dtype:
        """The dtype that the model runs in."""
        return next(p.dtype for p in self.model.parameters() if p.is_floating_point())

    def probe_batch(self) -> PackedBatch:
        """Return a pass for probing the model."""
        num_ids = self.model.config.get_text_config().vocab_size
        return probe_batch(num_ids, self.max_context, self.device)

    def _forward(self, batch: PackedBatch, context: AttentionContext) -> ForwardOutput:
        hidden: list[torch.Tensor] = []
        aux: dict[int, torch.Tensor] = {}
        handles = []
        if self._wants_hidden:
            head = output_head(self.model)
            if self._keeps_rows:
                handles += [body.register_forward_hook(_keep_last_hidden(hidden)) for body in self._bodies]
            else:
                handles.append(head.register_forward_pre_hook(lambda _, args: hidden.append(args[0])))
        for k in self._aux_ids:
            if k == len(self.layers):
                handles.append(self.layers[-1].register_forward_hook(_keep_output(aux, k)))
            else:
                handles.append(
                    self.layers[k].register_forward_pre_hook(_keep_input(aux, k), with_kwargs=True)
                )
        keep = (
            {"logits_to_keep": batch.logits_rows}
            if self._keeps_rows and batch.logits_rows is not None
            else {}
        )
        try:
            with running(context):
                logits = self.model(
                    input_ids=batch.token_ids[None],
                    position_ids=batch.positions[None],
                    use_cache=False,
                    **keep,
                ).logits[0]
        finally:
            for handle in handles:
                handle.remove()
        if batch.logits_rows is not None and not keep:
            logits = logits[batch.logits_rows]
        return ForwardOutput(
            logits=logits.to(self.device),
            hidden_states=hidden[-1][0].to(self.device) if self._wants_hidden else None,
            aux_hidden_states=tuple(aux[k][0].to(self.device) for k in self._aux_ids),
        )

    @in_inference_mode
    def _probe(self) -> None:
        """Run a few tokens to find the cache's shapes and to check that every layer calls our attention."""
        batch = self.probe_batch()
        probe = AttentionProbe(self.max_context)
        self._forward(batch, AttentionContext(self.backend, batch, probe=probe))
        self.windows = probe.windows
        missing = sorted(set(range(len(self.layers))) - set(probe.windows))
        if missing:
            raise ModelError(
                f"{type(self.model).__name__}: layers {missing} do not call transformers' attention interface, so they "
                "would run without the paged cache; specdec cannot serve this model"
            )

    @in_inference_mode
    def _run_other_forms(self) -> None:
        """Run the passes that steps may run and that no probe has run, so that no request compiles anything."""
        batch = self.probe_batch()
        batch = replace(
            batch, slots=batch.positions
        )  # unlike the probes', as passes of several requests have
        if self.fused is None:
            self.forward_reference(batch)
        else:
            self.fused.run_other_forms(batch)


def _keep_last_hidden(into: list[torch.Tensor]) -> Callable[..., None]:
    def hook(module: nn.Module, args: object, output: object) -> None:
        state = getattr(output, "last_hidden_state", None)
        assert isinstance(state, torch.Tensor)
        into.append(state)

    return hook


def _keep_input(into: dict[int, torch.Tensor], layer: int) -> Callable[..., None]:
    def hook(module: nn.Module, args: tuple[torch.Tensor, ...], kwargs: dict[str, torch.Tensor]) -> None:
        into[layer] = args[0] if args else kwargs["hidden_states"]

    return hook


def _keep_output(into: dict[int, torch.Tensor], layer: int) -> Callable[..., None]:
    def hook(module: nn.Module, args: object, output: torch.Tensor | tuple[torch.Tensor, ...]) -> None:
        into[layer] = output if isinstance(output, torch.Tensor) else output[0]

    return hook
