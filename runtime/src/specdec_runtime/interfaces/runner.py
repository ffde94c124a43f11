"""A runner: one model or head on its own KV cache, as proposers and backends see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn

from specdec.interfaces import PassMemory
from specdec_runtime.interfaces.attention import Attention
from specdec_runtime.interfaces.chain import Chain, Chains, ChainWork, ContextRows, NewRows
from specdec_runtime.interfaces.forward import ForwardOutput, PackedBatch
from specdec_runtime.interfaces.kv_cache import KVCache
from specdec_runtime.interfaces.layer_states import DraftStates


@dataclass(frozen=True)
class Wanted:
    """The hidden states that passes return."""

    final: bool = False
    """The states after the final norm; for heads, the carry."""
    aux_layer_ids: tuple[int, ...] = ()
    """Layers whose inputs are returned; the number of layers means the last layer's output."""


class Runner(Protocol):
    """Runs one module over packed batches; `TargetHandle.make_runner` makes one for a proposer's model or head."""

    module: nn.Module
    """The model or `DraftHead`."""
    device: torch.device
    """Where inputs are given and logits returned."""
    dtype: torch.dtype
    """The dtype the module runs in."""
    max_context: int
    """Maximum sequence length, in tokens."""
    cache: KVCache
    """The current cache; `allocate` replaces it."""
    attention: Attention
    """Attention on the current cache."""
    windows: dict[int, int | None]
    """Sliding window of each layer; None if a row sees everything before it."""
    wanted: Wanted
    """The hidden states that passes return."""
    is_invariant: bool
    """Whether logits must be bit-identical in any pass."""
    is_draft: bool
    """Whether the module is a proposer's, so that its draft loop is worth compiling or recording."""
    rounding: float
    """Relative distance of the module's own logits from those in wider arithmetic, if measured."""
    agreed: set[tuple[int, str]]
    """Stages and the backends whose forms of them agree with the model, so that they are not compared again."""
    pass_memory: PassMemory
    """What the device holds of running requests, of all runners of an engine."""
    num_tree_nodes: int
    """Most nodes of the trees that passes verify; 0 if drafts are chains."""
    expected: tuple[NewRows, ChainWork] | None
    """What its draft loop will be asked for, of one request with as many new tokens as there may be; None if unknown."""
    context: ContextRows | None
    """Gives the rows of texts, if the module's passes have none."""
    chain: Chain | None
    """The draft loop of its module; None if there is none, and then `draft_chain` must not be called."""

    @property
    def states(self) -> DraftStates | None:
        """States of layers that keep no keys and values; passes of such a model name requests by `Segment.owner`."""

    def forward(
        self, batch: PackedBatch, features: torch.Tensor | None = None, stage: int = 0
    ) -> ForwardOutput:
        """Run a pass and write its keys and values to the cache.

        Args:
            batch: the tokens.
            features: `[T, F]` for heads; see `DraftHead.forward`.
            stage: stage of a head.
        """

    def draft_chain(self, output: ForwardOutput, work: ChainWork) -> Chains:
        """Draft a chain of tokens for each row in one compiled call or recording; the last token is not run.

        Equivalent to alternating `forward` and token selection, without the overhead per step. The tokens are the
        same up to rounding of the logits.

        Args:
            output: logits `[B, V']`, and for heads the carry `[B, F]`, of each row's last token; may be overwritten.
            work: what to draft.
        """

    def draft_after(self, rows: NewRows, work: ChainWork) -> Chains:
        """Run new rows, then draft as `draft_chain` does from each request's last row, in one call.

        Args:
            rows: the new rows, at most `Chain.max_new_rows` in total.
            work: what to draft.

        Raises:
            NeedsTokens: if the host has to read the verdict first; see `ChainWork.is_unread`.
        """

    def capture_hidden(self, aux_layer_ids: tuple[int, ...] = ()) -> None:
        """Return final hidden states, and the inputs of these layers, with every later pass.

        Raises:
            ModelError: if the model has no layer of a given id.
        """

    def allocate(self, num_slots: int) -> None:
        """Allocate the cache for `num_slots` tokens."""
