"""A host's facts about its target, and the parts of it that a proposer may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedTokenizerBase

from specdec import ConfigError
from specdec.config import Checkpoint, TargetFacts
from specdec.interfaces import Capability, PassMemory, RequestTable, TargetHandle, TargetInfo
from specdec.text import fingerprint


@dataclass(frozen=True, kw_only=True)
class HostTarget:
    """The target of another engine. Only the fields that token-only proposers need have no default."""

    vocab_size: int
    """Number of logits per row."""
    max_model_len: int
    """Maximum context length, in tokens."""
    eos_token_ids: tuple[int, ...] = ()
    hidden_size: int = 0
    num_layers: int = 0
    dtype: torch.dtype = torch.float32
    device: torch.device = torch.device("cpu")  # noqa: RUF009  a constant
    max_num_seqs: int = 1
    """Maximum number of requests in one batch."""
    path: str | None = None
    """Directory or hub id of its checkpoint."""
    revision: str | None = None
    config: PretrainedConfig | None = None
    """Its configuration, for heads."""
    tokenizer: PreTrainedTokenizerBase | None = None
    embed_tokens: nn.Module | None = None
    """Maps ids to embeddings, for heads."""
    lm_head: nn.Module | None = None
    """Maps final hidden states to logits, for heads."""
    has_hidden_states: bool = False
    """Whether `HostedProposer.keep_states` is given final hidden states."""
    has_aux_hidden_states: bool = False
    """Whether it is given the inputs of the layers in `HostedProposer.aux_layer_ids` as well."""
    table: RequestTable | None = None
    """The committed tokens of all requests, where the host has them on the device and fills them itself, for proposers that
    read such a table; `HostedProposer.start` is given each request's line."""
    kv_cache_memory_bytes: int | None = None
    """Bytes for the KV caches of the proposer's models; None means what fits."""
    verifies_trees: bool = False
    """Whether the host verifies drafts that are trees."""

    @property
    def model(self) -> None:
        """Always None: the host runs the model, not `transformers`."""
        return None

    @property
    def gives(self) -> frozenset[Capability]:
        """The capabilities that the host provides to a proposer, and whether it verifies trees."""
        given = {
            Capability.HIDDEN_STATES: self.has_hidden_states,
            Capability.AUX_HIDDEN_STATES: self.has_aux_hidden_states,
            Capability.OWN_KV: True,
            Capability.TREE: self.verifies_trees,
        }
        return frozenset(capability for capability, is_given in given.items() if is_given)

    @property
    def facts(self) -> TargetFacts:
        """The facts that a `speculative_config` is checked against."""
        return TargetFacts(
            model=self.path,
            hf_config=self._hf_config,
            vocab_size=self.vocab_size,
            max_model_len=self.max_model_len,
            dtype=str(self.dtype)[6:],
        )

    @cached_property
    def info(self) -> TargetInfo:
        """The facts that a proposer receives before it loads anything."""
        return TargetInfo(
            vocab_size=self.vocab_size,
            hidden_size=self.hidden_size,
            num_layers=self.num_layers,
            max_model_len=self.max_model_len,
            dtype=self.dtype,
            device=self.device,
            eos_token_ids=self.eos_token_ids,
            tokenizer_fingerprint=fingerprint(self.tokenizer),
            max_num_seqs=self.max_num_seqs,
            gives=self.gives,
        )

    def handle(self) -> TargetHandle:
        """Return the handle that a proposer loads with; modules that the host lacks raise when used, and it runs no models."""
        return TargetHandle(
            info=self.info,
            path=self.path,
            revision=self.revision,
            config=self.config or PretrainedConfig(),
            embed_tokens=self.embed_tokens or _Absent("input embedding"),
            lm_head=self.lm_head or _Absent("output projection"),
            checkpoint=None,
            tokenizer=self.tokenizer,
            pass_memory=PassMemory.on(self.device),
            runner_factory=_refuse,
            model_loader=_refuse,
        )

    @property
    def _hf_config(self) -> Mapping[str, Any]:
        if self.config is not None:
            return self.config.to_dict()
        if self.path is None or not Path(self.path).is_dir():
            return {}
        return Checkpoint(self.path).config or {}


def _refuse(*_: object, **__: object) -> NoReturn:
    raise ConfigError(
        "speculative_config: this method runs a model, which needs specdec-runtime: pip install specdec-runtime"
    )


class _Absent(nn.Module):
    """Takes the place of a module that the host does not provide."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self._message = f"this engine does not lend the target's {what} to proposers"

    def forward(self, *_: object) -> torch.Tensor:
        raise ConfigError(self._message)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            return super().__getattr__(name)
        raise ConfigError(self.__dict__["_message"])
