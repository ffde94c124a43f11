"""The innermost form: the module's own forward, with our attention and cache."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from specdec.errors import ModelError
from specdec_runtime.backends.comparison import WIDER, distance, in_wider_arithmetic
from specdec_runtime.interfaces.form import Form
from specdec_runtime.interfaces.forward import ForwardOutput, PackedBatch
from specdec_runtime.interfaces.head import DraftHead
from specdec_runtime.interfaces.kv_cache import KVCache
from specdec_runtime.lora import adapted
from specdec_runtime.models.attention_probe import AttentionProbe
from specdec_runtime.models.parts import cache_argument, decoder_layers, keeps_logits_rows, output_head
from specdec_runtime.runner.binding import ATTENTION_NAME, AttentionContext, running
from specdec_runtime.runner.sdpa import SdpaAttention

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from specdec_runtime.runner.runner import ModuleRunner

_NOISE = 1e-6
"""Relative distance of two passes that is always rounding."""
_ALONE = 1 << 22
"""Up to this many products of rows and weights a pass is one thread's: it is done before others are gathered, which every
operation would wait for, for milliseconds where the system is busy."""


class OwnForward(Form):
    """Base class: runs a pass through the module itself."""

    module: nn.Module
    is_fast = False

    def __init__(self, runner: ModuleRunner) -> None:
        self._runner = runner

    def forward(self, batch: PackedBatch, features: torch.Tensor | None) -> ForwardOutput:
        """Run a pass by the module's own forward, with our attention."""
        batch.send()
        runner = self._runner
        with threads_for(runner.device, len(batch.token_ids) * self._num_weights):
            return self.run(batch, features, AttentionContext(runner.attention, batch, runner.windows))

    @cached_property
    def _num_weights(self) -> int:
        return sum(weight.numel() for weight in self.module.parameters())  # of those in blocks the bytes

    def forward_wide(self, batch: PackedBatch, features: torch.Tensor | None) -> ForwardOutput:
        """Run a pass with an empty cache in wider arithmetic; see `WIDER`."""
        runner = self._runner
        attention = SdpaAttention(KVCache(len(batch.token_ids), runner.device), runner.max_context)
        with in_wider_arithmetic(self.module, WIDER.get(runner.dtype, runner.dtype)):
            return self.run(batch, features, AttentionContext(attention, batch, runner.windows))

    def probe(self, batch: PackedBatch, features: torch.Tensor | None) -> dict[int, int | None]:
        """Run a few tokens to find the cache's shapes; returns the window of every layer that calls our attention.

        Raises:
            ModelError: if a layer does not, and would run without a cache, or if the module cannot run.
        """
        runner = self._runner
        probe = AttentionProbe(runner.max_context)
        # Positions with a gap would be taken for two texts, with a rule of their own.
        first = replace(batch, positions=torch.arange(len(batch.token_ids), device=runner.device))
        try:
            self.run(first, features, AttentionContext(runner.attention, first, probe=probe))
        except (ModelError, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # its own code: a configuration with parts missing may raise anything
            raise ModelError(
                f"{type(self.module).__name__} cannot run as it is configured: {type(error).__name__}: {error}"
            ) from error
        missing = self.missing(probe.windows)
        if missing:
            raise ModelError(
                f"{type(self.module).__name__}: {missing} call transformers' attention interface, so it would "
                "run without the paged cache; specdec cannot serve this model"
            )
        return probe.windows

    def check_positions(self, batch: PackedBatch) -> None:
        """Refuse a module that takes positions from elsewhere than `PackedBatch.positions`; heads are given no other."""

    def warm_up(self, batch: PackedBatch, features: torch.Tensor | None) -> None:
        """Run a short pass, so that no request compiles anything."""
        self.forward(batch, features)

    def run(
        self, batch: PackedBatch, features: torch.Tensor | None, context: AttentionContext
    ) -> ForwardOutput:
        """Run a pass in an attention context."""
        raise NotImplementedError

    def missing(self, found: dict[int, int | None]) -> str | None:
        """Return which layers did not call our attention, with "do not"; None if all did."""
        raise NotImplementedError


class ModelForward(OwnForward):
    """Runs a causal language model of `transformers`, unmodified but for its attention implementation."""

    def __init__(self, model: PreTrainedModel, runner: ModuleRunner) -> None:
        super().__init__(runner)
        self.module = self._model = model
        self._layers = decoder_layers(model)
        self._keeps_rows = keeps_logits_rows(model)
        from transformers import PreTrainedModel  # a base class that takes seconds to import

        # The modules that may return the final hidden state; which of them a model calls differs (OPT: the inner decoder).
        self._bodies = [m for m in model.modules() if isinstance(m, PreTrainedModel) and m is not model]
        self._cache_argument = cache_argument(model)
        self._length = 0
        """Number of tokens that the model is told its cache holds."""
        self._counts_rows = False
        """Whether the model takes a row's position from its number and the cache's length, which is then told for each row."""
        model.set_attn_implementation(ATTENTION_NAME)

    def missing(self, found: dict[int, int | None]) -> str | None:
        """Return which layers did not call our attention, with "do not"; None if all did."""
        states = self._runner.states
        others = frozenset() if states is None else states.layers_without_attention
        places = (getattr(module, "layer_idx", None) for module in self._layers.modules())
        kept = {place for place in places if isinstance(place, int)}
        every = kept if len(kept) == len(self._layers) else set(range(len(self._layers)))
        missing = sorted(every - others - set(found))
        return f"layers {missing} do not" if missing else None

    def probe(self, batch: PackedBatch, features: torch.Tensor | None) -> dict[int, int | None]:
        """Find the cache's shapes and the modules that keep states; returns windows of each layer that calls our attention."""
        states, attention = self._runner.states, self._runner.attention
        if states is not None:
            first = AttentionContext(attention, batch, probe=AttentionProbe(self._runner.max_context))
            states.find(self._model, lambda cache: self._call(batch, replace(first, cache=cache)))
        windows = super().probe(batch, features)
        if states is not None:
            self._runner.windows |= windows
            text = replace(
                batch, positions=torch.arange(len(batch.token_ids), device=self._runner.device), longest=None
            )
            states.check(lambda part: self.forward(part, None).logits, text, self._runner.dtype)
        return windows

    def check_positions(self, batch: PackedBatch) -> None:
        """Compare a pass over the last positions with one that also has a cache of their length, as in `generate`.

        Where they differ, the model is told a length for each row: the requests of a pass have no common one.

        Raises:
            ModelError: if they differ then, too.
        """
        num_rows, length = len(batch.token_ids), int(batch.positions[-1]) + 1
        late = replace(batch, positions=torch.arange(length - num_rows, length, device=self._runner.device))
        plain, again = (self.forward(late, None).logits for _ in range(2))
        self._length = length - num_rows
        try:
            cached = self.forward(late, None).logits
        finally:
            self._length = 0
        least = max(_NOISE, 10 * distance(again, plain))
        if distance(cached, plain) > least:
            self._counts_rows = self._runner.states is None
            if distance(cached, self.forward(late, None).logits) > least:
                raise ModelError(
                    f"{type(self.module).__name__} takes positions from the length of the cache, and the requests of a pass "
                    "have different ones; specdec cannot serve this model"
                )

    def run(
        self, batch: PackedBatch, features: torch.Tensor | None, context: AttentionContext
    ) -> ForwardOutput:
        """Run a pass in an attention context."""
        states, length = self._runner.states, self._length
        if states is not None:
            context.cache = states.cache(batch, length)
        elif length or self._counts_rows:
            # Imports transformers, which takes seconds, and plugins are listed without it.
            from specdec_runtime.interfaces.pass_cache import PassCache

            rows = torch.arange(len(batch.positions), device=batch.positions.device)
            context.cache = PassCache(batch.positions - rows if self._counts_rows else length)
        return self._call(batch, context)

    def _call(self, batch: PackedBatch, context: AttentionContext) -> ForwardOutput:
        """Call the model."""
        wanted, device = self._runner.wanted, self._runner.device
        hidden: list[torch.Tensor] = []
        aux: dict[int, torch.Tensor] = {}
        keep = (
            {"logits_to_keep": batch.logits_rows}
            if self._keeps_rows and batch.logits_rows is not None
            else {}
        )
        cache = {} if context.cache is None else {self._cache_argument: context.cache}
        handles = self._hooks(hidden, aux)
        try:
            with running(context), adapted(self._model, batch):
                logits = self._model(
                    input_ids=batch.token_ids[None],
                    position_ids=batch.positions[None],
                    use_cache=False,
                    **keep,
                    **cache,
                ).logits[0]
        finally:
            for handle in handles:
                handle.remove()
        if batch.logits_rows is not None and not keep:
            logits = logits[batch.logits_rows]
        return ForwardOutput(
            logits=logits.to(device),
            hidden_states=hidden[-1][0].to(device) if wanted.final else None,
            aux_hidden_states=tuple(aux[k][0].to(device) for k in wanted.aux_layer_ids),
        )

    def _hooks(
        self, hidden: list[torch.Tensor], aux: dict[int, torch.Tensor]
    ) -> list[torch.utils.hooks.RemovableHandle]:
        """Have a pass append final states to `hidden` and put layers' inputs into `aux`, where wanted."""
        wanted, handles = self._runner.wanted, []
        if wanted.final and self._keeps_rows:
            handles += [
                body.register_forward_hook(partial(_keep_last_hidden, hidden)) for body in self._bodies
            ]
        elif wanted.final:
            head = output_head(self._model)
            handles.append(head.register_forward_pre_hook(lambda _, args: hidden.append(args[0])))
        for k in wanted.aux_layer_ids:
            if k == len(self._layers):
                handles.append(self._layers[-1].register_forward_hook(partial(_keep_output, aux, k)))
            else:
                layer = self._layers[k]
                handles.append(
                    layer.register_forward_pre_hook(partial(_keep_input, aux, k), with_kwargs=True)
                )
        return handles


class HeadForward(OwnForward):
    """Runs one stage of a draft head."""

    def __init__(self, head: DraftHead, stage: int, runner: ModuleRunner) -> None:
        super().__init__(runner)
        self.module = self._head = head
        self._stage = stage
        head.config._attn_implementation = ATTENTION_NAME

    def missing(self, found: dict[int, int | None]) -> str | None:
        """Return which layers did not call our attention, with "do not"; None if all did."""
        return None if found else f"stage {self._stage} does not"

    def run(
        self, batch: PackedBatch, features: torch.Tensor | None, context: AttentionContext
    ) -> ForwardOutput:
        """Run a pass in an attention context."""
        assert features is not None, "heads take features"
        given = features[None].to(self._runner.dtype)
        with running(context):
            states, carry = self._head(batch.token_ids[None], batch.positions[None], given, self._stage)
        rows = states[0] if batch.logits_rows is None else states[0][batch.logits_rows]
        return ForwardOutput(self._head.project(rows, self._stage), carry[0])


def threads_for(device: torch.device, num_products: int) -> AbstractContextManager[None]:
    """Have torch use one thread for a pass of few products of rows and weights on the CPU; see `_ALONE`."""
    return one_thread() if device.type == "cpu" and num_products <= _ALONE else nullcontext()


@contextmanager
def one_thread() -> Iterator[None]:
    """Have torch use one thread."""
    number = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(number)


def own_forwards(module: nn.Module, runner: ModuleRunner) -> list[OwnForward]:
    """Return the own forward of a model, or of each stage of a head."""
    if isinstance(module, DraftHead):
        return [HeadForward(module, stage, runner) for stage in range(module.num_stages)]
    return [ModelForward(cast("PreTrainedModel", module), runner)]


def _keep_last_hidden(into: list[torch.Tensor], module: nn.Module, args: object, output: object) -> None:
    state = getattr(output, "last_hidden_state", None)
    assert isinstance(state, torch.Tensor)
    into.append(state)


def _keep_input(into: dict[int, torch.Tensor], layer: int, module: nn.Module, args: Any, kwargs: Any) -> None:
    into[layer] = args[0] if args else kwargs["hidden_states"]


def _keep_output(
    into: dict[int, torch.Tensor], layer: int, module: nn.Module, args: Any, output: Any
) -> None:
    into[layer] = output if isinstance(output, torch.Tensor) else output[0]
