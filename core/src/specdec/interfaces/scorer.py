"""The scorer: runs the target once over all drafts of a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from specdec.errors import ConfigError
from specdec.interfaces.adapter import Adapter
from specdec.interfaces.draft_slots import DraftSlots
from specdec.interfaces.layer_states import LayerStates
from specdec.interfaces.pass_memory import PassMemory
from specdec.interfaces.score_batch import ScoreBatch, SlotCache
from specdec.interfaces.target import TargetHandle
from specdec.lora import LoRARequest
from specdec.target_facts import TargetFacts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from specdec.engine_options import EngineOptions

Weights = str | Path | Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]]
"""Weights of a model: where a checkpoint is, or its tensors by name."""
Tell = Callable[[TargetHandle | None], bool]
"""Calls `Proposer.weights_changed`, from when on requests are refused; returns whether the proposer follows."""


@dataclass(frozen=True)
class Scores:
    """p-logits of the last committed token and of every drafted node, for each request that gets a token in this step.

    Rows R of `logits` are packed request after request, `1 + number of nodes` of each: its last committed token's, then its
    nodes'. They are final: every sampling parameter and grammar mask is already applied to a row, along the drafted
    path that leads to it. A sampler applies none itself.
    """

    logits: torch.Tensor
    """`[R, V]`; forbidden ids are -inf. For greedy requests only the order within a row is meaningful.

    Rows are packed request after request, `1 + num_nodes` each: that of the last committed token, then those of its
    draft's nodes in their order."""
    raw_logits: torch.Tensor
    """`[R, V]`: the target's logits before sampling parameters, for logprobs."""
    prompt_logits: torch.Tensor | None = None
    """`[P, V]`: the target's logits at the `prompt_rows` of all running requests, concatenated; None if there are none."""
    hidden_states: torch.Tensor | None = None
    """`[T, H]` of the whole pass, if requested by `capture_hidden`. Rows are packed in the order of the running requests,
    chunk + nodes each: those of the committed tokens that it ran, then those of its draft's nodes, if it samples."""
    aux_hidden_states: tuple[torch.Tensor, ...] = ()
    """`[T, H]` per aux layer id."""
    is_cut: bool = True
    """Whether top-k and top-p are applied; only a sampler that asked for it (`Sampler.cuts`) is given `logits` without."""
    is_valid: torch.Tensor | None = None
    """`[R]` bool, for samplers: which rows of `logits` were numbers before the others became uniform; None if all were."""


class Scorer(ABC):
    """Owns the target, its KV cache and its attention."""

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    api_version: ClassVar[int] = 1
    """The `SPECDEC_API` this class was written for; see `Proposer.api_version`."""
    on_pass: Callable[[Callable[[], object]], None] | None = None
    """Set during a measurement: `score` calls it after the pass with a function that runs the same pass
    again."""

    pass_memory: PassMemory | None = None
    """What the device holds of running requests between passes; None, or without numbers, where the host has it all."""
    supports_device_nodes: ClassVar[bool] = False
    """Whether `score` takes tokens of `ScoreBatch.device_nodes` from where they are."""

    num_tree_nodes: int = 0
    """Set before `allocate`: most nodes of a tree that a request's draft may have; 0 if drafts are chains."""

    max_logits_rows: int | None = None
    """Set before `allocate`: most rows of logits that a step needs; None if it may need those of all rows."""

    draft_slots: DraftSlots | None = None
    """Where proposers may write in the target's cache; None if it is not lent (`TargetHandle.make_target_runner`)."""

    states: LayerStates | None = None
    """States of layers that keep no keys and values, from `load` on; None without such layers. With them, drafts are chains."""

    slot_pool: Any = None
    """From `allocate` on: the subclass of `specdec.engine.SlotPool` that places requests in the cache; None for itself."""

    @classmethod
    def facts(cls, options: EngineOptions) -> TargetFacts:
        """Return what is known of the target before it is loaded, which `speculative_config` is checked against.

        `options.model` is an object, or the directory or hub id that its name stands for.
        """
        named = isinstance(options.model, str)
        return TargetFacts(options.model if named else None, max_model_len=options.max_model_len)

    @abstractmethod
    def load(self, options: EngineOptions) -> TargetHandle:
        """Load the target.

        Raises:
            ModelError: if the model cannot be served correctly.
        """

    @abstractmethod
    def allocate(self) -> None:
        """Allocate the KV caches of the target and the proposer's models; called once after both are loaded.

        Raises:
            ConfigError: if one request of the maximum context length does not fit into memory.
        """

    @property
    @abstractmethod
    def cache(self) -> SlotCache:
        """The target's cache."""

    @property
    @abstractmethod
    def tokenizer(self) -> PreTrainedTokenizerBase | None:
        """The target's tokenizer, if it has one."""

    @abstractmethod
    def capture_hidden(self, aux_layer_ids: Sequence[int]) -> None:
        """Return final hidden states, and the inputs of these layers, with every pass from now on."""

    def load_adapter(self, request: LoRARequest) -> Adapter:
        """Return an adapter, loading it if it is not; called on any thread, also while a pass runs.

        Raises:
            ConfigError: if it cannot be read or does not fit the target, and for scorers without adapters.
        """
        raise ConfigError(f"LLM: scorer={self.name!r} serves no adapters: leave out {request.lora_name!r}")

    def update_weights(self, weights: Weights, tell: Tell) -> None:
        """Replace the target's weights; no request runs. If they are refused, nothing has changed.

        Args:
            weights: see `LLM.update_weights`.
            tell: called with None once they are checked, before anything is written; then with the target as it is.

        Raises:
            ConfigError: if they do not fit, naming the tensor, and for scorers whose weights cannot be replaced.
            ModelError: if they cannot be read.
        """
        raise ConfigError(f"LLM: the weights of scorer={self.name!r} cannot be replaced: make a new LLM")

    def sleep(self, level: int, tell: Tell) -> None:
        """Give memory back until `wake_up`, or with level 2 until `update_weights`; no request runs.

        Args:
            level: see `LLM.sleep`.
            tell: called with None, before anything is let go.

        Raises:
            ConfigError: for scorers that cannot.
        """
        raise ConfigError(f"LLM: scorer={self.name!r} cannot sleep: use LLM.shutdown()")

    def wake_up(self, tell: Tell) -> None:  # noqa: B027  only those that sleep have something to do
        """Undo `sleep(1, ...)`; `tell` is called once with the target."""

    def counts(self) -> dict[str, int]:
        """Return counters for the metrics, by name; the prefix `specdec:` is added."""
        return {}

    def levels(self) -> dict[str, int]:
        """Return gauges for the metrics, by name; the prefix `specdec:` is added."""
        return {}

    @abstractmethod
    def score(self, batch: ScoreBatch) -> Scores:
        """Run the target once over all prompt chunks and drafted nodes of a step; returns the logits that are needed."""
