"""Facts about the target, and the parts of it that a proposer may use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import nn

from specdec.errors import ConfigError
from specdec.interfaces.capability import NEEDED_CAPABILITIES, Capability
from specdec.interfaces.pass_memory import PassMemory

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class TargetInfo:
    """Facts about the loaded target."""

    vocab_size: int
    """Number of logits per row."""
    hidden_size: int
    """Width of a hidden state."""
    num_layers: int
    """Number of decoder layers."""
    max_model_len: int
    """Maximum context length of the engine, in tokens."""
    dtype: torch.dtype
    """Of the weights and the hidden states."""
    device: torch.device
    """Where the model takes its input."""
    eos_token_ids: tuple[int, ...]
    """Ids that end a text."""
    tokenizer_fingerprint: str | None
    """Hash over the ordered token strings; equal fingerprints mean equal ids. None without a tokenizer. The
    tokenizer itself is `TargetHandle.tokenizer`, which `Proposer.load` gets."""
    tensor_parallel_size: int = 1
    """Number of ranks that the target is split over."""
    max_num_seqs: int = 256
    """Maximum number of requests in one batch."""
    prefix_block_size: int = 0
    """Tokens per block of the prefix cache: prefixes passed to `Proposer.resume` end at a multiple of it. 0
    if prefixes are not reused."""
    may_record: bool = False
    """Whether a proposer may capture graphs of what it runs beside its runners."""
    has_narrow_weights: bool = False
    """Whether its passes read the few bits of a file, so that they are short beside those of a draft."""
    gives: frozenset[Capability] = NEEDED_CAPABILITIES | {Capability.TREE}
    """What the engine gives to proposers, and whether it verifies trees: other engines may not list the target's top ids. A
    proposer that can do without leaves the capability out in `__init__`."""


MakeForm = Callable[["PreTrainedModel"], nn.Module]
"""Makes a form of the target; see `TargetHandle.make_target_runner`."""


class CheckpointReader(Protocol):
    """Reads single tensors of a checkpoint, including those that the loaded model dropped."""

    def names(self) -> Iterator[str]:
        """Yield the names of all tensors in the checkpoint."""

    def read(self, name: str) -> torch.Tensor:
        """Return one tensor on the CPU.

        Raises:
            KeyError: naming the tensor and the checkpoint.
        """


@dataclass(frozen=True)
class TargetHandle:
    """The parts of the target that proposers may use. Weights are shared: do not write to them."""

    info: TargetInfo
    """The facts that `__init__` got too."""
    path: str | None
    """Directory or hub id; None for a model that was passed as an object."""
    revision: str | None
    """Branch, tag or commit of a hub repository."""
    config: PretrainedConfig
    """The model's `config.json`."""
    embed_tokens: nn.Module
    """Maps ids `[...]` to embeddings `[..., H]`."""
    lm_head: nn.Module
    """Maps final hidden states `[..., H]` to logits `[..., V]`."""
    checkpoint: CheckpointReader | None
    """None for a model that was passed as an object."""
    tokenizer: PreTrainedTokenizerBase | None
    """The target's, as `transformers` has it: text of ids with `decode`, ids of text with `encode`. None if the engine runs
    without one, as with `skip_tokenizer_init`."""
    pass_memory: PassMemory
    """What the device holds of running requests between passes."""
    runner_factory: Callable[[nn.Module], Any]
    """Implements `make_runner`."""
    model_loader: ModelLoader
    """Implements `load_model`."""
    part_loader: ModelLoader | None = None
    """Loads models split over the target's ranks; None if the target runs on one rank."""
    target_runner_factory: Callable[[MakeForm], Any] | None = None
    """Implements `make_target_runner`; None if the target's cache is not lent."""
    cache_reader_factory: Callable[[], Any] | None = None
    """Implements `make_cache_reader`; likewise."""

    def make_runner(self, module: nn.Module) -> Any:
        """Make the scorer's runner for a causal language model, or for a head, which reads the target's hidden states.

        It has a KV cache and attention as the target has, counted in the engine's memory. Its cache is allocated after
        `Proposer.load` returns, with as many slots as the target's. Its type is the scorer's: `specdec-runtime` makes a
        `specdec_runtime.interfaces.Runner`, and takes a `DraftHead` for a head.

        Raises:
            ModelError: if the module cannot run on our cache.
        """
        return self.runner_factory(module)

    def make_target_runner(self, make_form: MakeForm) -> Any:
        """Make a runner for a cheaper form of the target, on the target's own cache; for `Capability.TARGET_CACHE`.

        Args:
            make_form: gets a second model over the target's weights, and returns what is to run: for example this model with
                other linear maps, or with fewer layers, each of which keeps its `layer_idx`.

        Raises:
            ConfigError: if the target's cache is split or spread over several devices, and cannot be lent.
            ModelError: if the form cannot run on the target's cache.
        """
        return _lent(self.target_runner_factory)(make_form)

    def make_cache_reader(self) -> Any:
        """Make what reads the keys and values of committed tokens from the target's cache; for `Capability.TARGET_CACHE`.

        Its type is the scorer's: `specdec-runtime` makes a `specdec_runtime.interfaces.CacheReader`. Requests then lie in runs
        of the cache, so that cached prefixes are copied where they would be shared.

        Raises:
            ConfigError: if the target's cache is split or spread over several devices, and cannot be lent.
        """
        return _lent(self.cache_reader_factory)()

    def load_model(
        self,
        path: str,
        *,
        revision: str | None = None,
        dtype: str | torch.dtype = "auto",
        quantization: str | None = None,
        tensor_parallel_size: int = 1,
    ) -> PreTrainedModel:
        """Load a causal language model with the engine's own rules (safetensors only, no remote code, unless allowed).

        For the target's own directory, the returned model shares the target's weights.

        Args:
            path: directory or hub id.
            revision: revision on a hub.
            dtype: `auto` for the target's, or a name such as `float32`.
            quantization: the quantisation method that the checkpoint must have; None accepts any.
            tensor_parallel_size: number of ranks that it is split over: the target's
                (`draft_tensor_parallel_size`), or 1 for all of it on rank 0, where the proposer runs.
                `make_runner` runs either.

        Raises:
            ModelError: if it cannot be loaded, split or served.
            ConfigError: if `dtype` or `quantization` do not fit.
        """
        load = self.model_loader
        if tensor_parallel_size > 1 and self.part_loader is not None:
            load = self.part_loader
        return load(path, revision=revision, dtype=dtype, quantization=quantization)


def _lent(factory: Callable[..., Any] | None) -> Callable[..., Any]:
    """Return what lends the target's cache; raises `ConfigError` if nothing does."""
    if factory is None:
        raise ConfigError(
            "speculative_config: this method drafts on the target's cache, which is not lent where the target is split "
            "over ranks (tensor_parallel_size) or spread over devices (device_map): use a method with a draft of its own"
        )
    return factory


class ModelLoader(Protocol):
    """Loads a causal language model; see `TargetHandle.load_model`."""

    def __call__(
        self, path: str, *, revision: str | None, dtype: str | torch.dtype, quantization: str | None
    ) -> PreTrainedModel:
        """Return the model on the target's device, in evaluation mode."""
