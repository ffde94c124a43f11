"""The runner: one model or head on its own KV cache, run by the fastest of its forms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np
import torch
from torch import nn

from specdec.backends import grouped_warnings
from specdec.errors import ModelError
from specdec.interfaces import NoiseKeys, PassMemory
from specdec_runtime.backends.forms import choose_forms, is_fast, keep_working, numbers_of
from specdec_runtime.backends.linears import slow_down, speed_up_blocks, speed_up_linears, speed_up_quantized
from specdec_runtime.interfaces.attention import AttentionFactory
from specdec_runtime.interfaces.chain import Chain, ChainRules, Chains, ChainWork, ContextRows, NewRows
from specdec_runtime.interfaces.form import Form, PassLimits
from specdec_runtime.interfaces.forward import ForwardOutput, PackedBatch, Segment
from specdec_runtime.interfaces.head import DraftHead
from specdec_runtime.interfaces.kv_cache import KVCache
from specdec_runtime.interfaces.runner import Wanted
from specdec_runtime.lora import LinearMap, find_linear_maps
from specdec_runtime.models.parts import decoder_layers
from specdec_runtime.runner.binding import register
from specdec_runtime.runner.own_forward import own_forwards
from specdec_runtime.runner.sdpa import SdpaAttention
from specdec_runtime.states import layer_states

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_PROBE_ROWS = 16
"""Most rows of the pass that a module is probed with."""


def in_inference_mode(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Run a function in torch's inference mode; unlike torch's decorator, free if the mode is already on."""

    @wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if torch.is_inference_mode_enabled():
            return function(*args, **kwargs)
        with torch.inference_mode():
            return function(*args, **kwargs)

    return call


class ModuleRunner:
    """One causal language model of `transformers` or one `DraftHead`, its KV cache and its attention.

    Args:
        module: the model or head, in evaluation mode.
        device: where it runs.
        max_context: maximum sequence length, in tokens.
        is_fused: whether backends may run its passes (same arithmetic, fewer calls).
        make_attention: makes attention for a cache; None uses torch's.
        is_invariant: whether logits must be batch-invariant (bit-identical in any pass); with `is_fused` only.
        is_draft: whether this is a proposer's; its draft loops are then compiled or recorded as well.
        pass_memory: the engine's; None makes one.

    Raises:
        ModelError: if some of its layers do not call our attention and would run without a cache, or if the
            requested batch invariance is not possible.
    """

    def __init__(
        self,
        module: nn.Module,
        device: torch.device,
        max_context: int,
        *,
        is_fused: bool = True,
        make_attention: AttentionFactory | None = None,
        is_invariant: bool = False,
        is_draft: bool = False,
        pass_memory: PassMemory | None = None,
    ) -> None:
        self.pass_memory = pass_memory or PassMemory.on(device)
        self.module, self.device, self.max_context = module, device, max_context
        self.is_invariant, self.is_draft = is_invariant, is_draft
        self.dtype = next(p.dtype for p in module.parameters() if p.is_floating_point())
        self._make_attention: AttentionFactory = make_attention or SdpaAttention
        self.cache = KVCache(_PROBE_ROWS, device)
        self.attention = self._make_attention(self.cache, max_context)
        self.wanted = Wanted(final=isinstance(module, DraftHead))
        self.windows: dict[int, int | None] = {}
        self.states = layer_states(module, is_invariant=is_invariant)
        """States of the layers that keep no keys and values; None if there are no such layers."""
        self.num_tree_nodes = 0
        self.context: ContextRows | None = None
        self.expected: tuple[NewRows, ChainWork] | None = None
        self.rounding = 0.0
        """Relative distance of the module's own logits from those in wider arithmetic, if measured."""
        self.agreed: set[tuple[int, str]] = set()
        self.num_adapter_passes = 0
        """Passes with rows of adapters, which no faster form runs."""
        register()
        self._own = own_forwards(module, self)
        self.forms: list[list[Form]] = []
        """Forms of the model, or of each stage of the head, outermost first."""
        self.chain: Chain | None = None
        """The draft loop of this module; None if there is none."""
        self.may_fuse = is_fused
        """Whether a faster form than the own forward was requested."""
        self._probe()
        self._make_forms()

    @property
    def bytes_per_token(self) -> int:
        """Cache bytes per token, summed over all layers."""
        return self.cache.bytes_per_token

    @property
    def reserved_bytes(self) -> int:
        """Most device memory that the forms may take later."""
        return sum(form.reserved_bytes for form in self._all_forms())

    @in_inference_mode
    def forward(
        self, batch: PackedBatch, features: torch.Tensor | None = None, stage: int = 0
    ) -> ForwardOutput:
        """Run a pass; see `specdec.interfaces.Runner.forward`."""
        if batch.has_adapters:
            self.num_adapter_passes += 1
            return self._own[stage].forward(batch, features)
        return self.forms[stage][0].forward(batch, features)

    @in_inference_mode
    def draft_chain(self, output: ForwardOutput, work: ChainWork) -> Chains:
        """Draft a chain of tokens for each row; see `specdec.interfaces.Runner.draft_chain`."""
        assert self.chain is not None
        return self.chain.draft(output.logits, output.hidden_states, work)

    @in_inference_mode
    def draft_after(self, rows: NewRows, work: ChainWork) -> Chains:
        """Run new rows, then draft; see `specdec.interfaces.Runner.draft_after`."""
        assert self.chain is not None
        return self.chain.draft_after(rows, work)

    def capture_hidden(self, aux_layer_ids: Sequence[int] = ()) -> None:
        """Return final hidden states, and the inputs of these layers, with every later pass.

        Raises:
            ModelError: if the model has no layer of a given id.
        """
        num_layers = len(decoder_layers(self.module))  # type: ignore[arg-type]  # only models capture
        wrong = [k for k in aux_layer_ids if not 0 <= k <= num_layers]
        if wrong:
            raise ModelError(f"aux layer ids {wrong} are not in 0..{num_layers}")
        self.wanted = Wanted(True, tuple(aux_layer_ids))
        self._rebind()

    def make_cache(self, num_slots: int) -> KVCache:
        """Return a cache for `num_slots` tokens, without layers."""
        if self.states is None:
            return KVCache(num_slots, self.device)
        return self.states.make_kv_cache(num_slots, self.device)

    def allocate(self, num_slots: int) -> None:
        """Allocate the cache for `num_slots` tokens."""
        cache = self.make_cache(num_slots)
        cache.allocate_all(self.cache.shapes)
        self.use(cache)

    def use(self, cache: KVCache) -> None:
        """Run on this cache from now on."""
        self.cache = cache
        self.attention = self._make_attention(cache, self.max_context)
        self._rebind()

    @in_inference_mode
    def prepare(self, limits: PassLimits) -> None:
        """Let the forms record what passes of up to such sizes need, so that no request waits for it."""
        self._call_forms("preparation", lambda form: form.prepare(limits))

    def counts(self) -> dict[str, int]:
        """Return counters for the metrics: models and stages without a faster form, and what the forms count."""
        fallbacks = 0 if not self.may_fuse else sum(not is_fast(forms) for forms in self.forms)
        own = {"unfused_models": fallbacks, "adapter_passes": self.num_adapter_passes}
        return own | added(numbers_of(self._all_forms(), "counts"))

    def levels(self) -> dict[str, int]:
        """Return gauges for the metrics."""
        return added(numbers_of(self._all_forms(), "levels"))

    def probe_features(self, num_rows: int) -> torch.Tensor | None:
        """Return random features `[num_rows, F]` of moderate size for probing a head; None for a model."""
        if not isinstance(self.module, DraftHead):
            return None
        generator = torch.Generator().manual_seed(0)
        features = torch.randn(num_rows, self.module.feature_size, generator=generator)
        return features.to(self.device, self.dtype)

    @in_inference_mode
    def linear_maps(self) -> dict[str, LinearMap]:
        """Return the modules that adapters can be added to, by name, before the cache is allocated."""
        batch = self._probe_pass()
        count = len(batch.token_ids)
        rows = torch.arange(count, device=self.device)
        segments = [
            Segment(row=first, num_rows=num_rows, first_slot=first, num_cached=0)
            for first, num_rows in ((0, count // 2), (count // 2, count - count // 2))
        ]
        batch = replace(batch, segments=segments, positions=rows, slots=rows)
        return find_linear_maps(self.module, count, lambda: self._own[0].forward(batch, None))

    def _probe_pass(self) -> PackedBatch:
        """Return a pass of one request, with all logits, for probing the module.

        The ids are spread evenly over the vocabulary: the first ones are often special tokens, which trained models treat
        differently from all others, with much more rounding in 16 bits. The second half of the rows is at the last
        positions, because some models scale their queries beyond a length.
        """
        config = self.module.config.get_text_config()  # type: ignore[union-attr, operator]  # models and heads have one
        longest = min(self.max_context, getattr(config, "max_position_embeddings", None) or self.max_context)
        num_rows = min(_PROBE_ROWS, longest)
        rows = torch.arange(num_rows, device=self.device)
        ids = (2 * rows + 1) * config.vocab_size // (2 * num_rows)
        positions = torch.where(rows < num_rows // 2, rows, rows + longest - num_rows)
        segments = [Segment(row=0, num_rows=num_rows, first_slot=0, num_cached=0)]
        return PackedBatch(ids, positions, segments, slots=None, logits_rows=None, longest=longest)

    def let_go(self) -> None:
        """Let go of what was made of the weights, and of the cache's memory, until `renew`."""
        slow_down(self.module)
        self.forms, self.chain = [[own] for own in self._own], None
        self.cache.free()
        if self.states is not None:
            self.states.free()

    def renew(self) -> None:
        """Make everything again that is made of the module's weights, which are others, or back."""
        slow_down(self.module)
        if not self.cache.keys:
            self.cache.allocate_all(dict(self.cache.shapes))
        if self.states is not None:
            self.states.renew()
        self.forms = []
        self._make_forms()
        self.use(self.cache)

    @in_inference_mode
    def _probe(self) -> None:
        """Find the cache's shapes and windows of every stage, and refuse what cannot be served."""
        if self.may_fuse:
            speed_up_blocks(self.module)
        batch = self._probe_pass()
        features = self.probe_features(len(batch.token_ids))
        for own in self._own:
            self.windows |= own.probe(batch, features)
            own.check_positions(batch)

    @in_inference_mode
    @grouped_warnings()
    def _make_forms(self) -> None:
        """Choose the forms of every stage, and run each, so that no request compiles anything."""
        is_fused, batch = self.may_fuse, self._probe_pass()
        if is_fused:
            speed_up_blocks(self.module)
        features = self.probe_features(len(batch.token_ids))
        for stage, own in enumerate(self._own):
            forms: list[Form] = [own]
            if is_fused and self.states is None:
                forms = choose_forms(self, stage, own, own.forward_wide, batch, features)
            self.forms.append(forms)
        if is_fused and (isinstance(self.module, DraftHead) or not any(map(is_fast, self.forms))):
            speed_up_linears(self.module)
        # Recorded passes are of the own forward there; compiled ones read rounded weights by themselves.
        if is_fused and (self.device.type != "cpu" or not any(map(is_fast, self.forms))):
            speed_up_quantized(self.module, self.dtype)
        # Unlike the probes', as passes of several requests have.
        rows = torch.arange(len(batch.token_ids), device=self.device)
        batch = replace(batch, positions=rows, slots=rows, longest=None)
        self._call_forms("warm-up", lambda form: form.warm_up(batch, features))
        if self.is_draft and self.chain is not None:
            self._warm_up_chain(self.chain, batch, features)

    def _warm_up_chain(self, chain: Chain, batch: PackedBatch, features: torch.Tensor | None) -> None:
        output, zero = self.forms[0][0].forward(batch, features), np.zeros(1, np.int64)
        states = None if features is None or output.hidden_states is None else output.hidden_states[:1]
        keys, rules = NoiseKeys(zero, zero, zero), ChainRules(output.logits.shape[1])
        chain.draft(output.logits[:1], states, ChainWork([0], [0], 2, [0.0], keys, rules))

    def _rebind(self) -> None:
        self._call_forms("rebinding", lambda form: form.rebind())

    def _call_forms(self, what: str, call: Callable[[Form], None]) -> None:
        """Call all forms, those that raise are removed; then find the draft loop of those that are left."""
        for forms in self.forms:
            keep_working(self, forms, what, call)
        self.chain = None
        if len(self.forms) == 1:  # else each token of a draft has a stage of its own
            self.chain = next((form.chain for form in self.forms[0] if form.chain is not None), None)

    def _all_forms(self) -> Iterator[Form]:
        return (form for forms in self.forms for form in forms)


def added(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    """Return the sums of numbers by name."""
    total: dict[str, int] = {}
    for part in parts:
        for name, number in part.items():
            total[name] = total.get(name, 0) + number
    return total
