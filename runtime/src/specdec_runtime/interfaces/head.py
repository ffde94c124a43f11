"""The interface of draft heads: small modules that read the target's hidden states together with the tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from transformers import PretrainedConfig


@dataclass(frozen=True)
class HeadParts:
    """The parts of a stage whose layers have the Llama structure, which can therefore run compiled.

    `x = join([e; f])` with the embedding e and the feature f, each normalized if it has a norm; then the layers.
    Without `join` the first layer's projections take `[e; f]` directly, and f is the residual stream.
    """

    embed_tokens: nn.Module
    layers: nn.ModuleList
    rotary: nn.Module
    head: nn.Module
    norm: nn.Module | None
    """Norm before `head`; None if there is none."""
    first_norm: nn.Module | None
    """Norm of the first layer's input; None if the input is not normalized, or is `[e; f]`."""
    join: nn.Linear | None = None
    embed_norm: nn.Module | None = None
    feature_norm: nn.Module | None = None
    is_feature_first: bool = False
    is_normed_residual: bool = False
    is_normed_carry: bool = False
    """Whether the feature of the next token is the output of `norm` rather than its input."""


class DraftHead(nn.Module, ABC):
    """A head maps each token and the state that predicted it to the next token's logits and a predicted state.

    Feature-level drafting (Li et al., arXiv 2401.15077) and multi-token prediction (DeepSeek-AI, arXiv
    2412.19437) use heads of this kind.
    Attention layers are those of `transformers`, made with `config`. Their `layer_idx` counts from 0 over all stages.
    """

    target_ids: torch.Tensor | None = None
    """`[V']` the target's id of each logit; None if they are the same."""
    mask_id: int | None = None
    """The mask token, which replaces tokens that are not known yet, for heads that draft in parallel."""
    mask_feature: torch.Tensor | None = None
    """`[F]` the feature of the mask token."""

    def __init__(
        self, config: PretrainedConfig, feature_size: int, num_logits: int, num_stages: int = 1
    ) -> None:
        """Store what runners need.

        Args:
            config: the attention layers' configuration.
            feature_size: F, the width of features.
            num_logits: V', the number of ids the head can predict.
            num_stages: number of sequential modules. Stage s drafts the token s positions further, from the carry
                of stage s - 1.
        """
        super().__init__()
        self.config = config
        self.feature_size = feature_size
        self.num_logits = num_logits
        self.num_stages = num_stages

    def combine(
        self, hidden_states: torch.Tensor, aux_hidden_states: tuple[torch.Tensor, ...]
    ) -> torch.Tensor:
        """Return the features `[T, F]` for the target's states, each `[T, Ht]`; by default the last hidden states."""
        return hidden_states

    @abstractmethod
    def forward(
        self, input_ids: torch.Tensor, position_ids: torch.Tensor, features: torch.Tensor, stage: int = 0
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run a stage.

        Args:
            input_ids: `[B, T]` tokens.
            position_ids: `[B, T]`.
            features: `[B, T, F]` for each token the state that predicted it, from the target (`combine`) or from
                this head (carry).
            stage: index of the stage.

        Returns:
            states `[B, T, H]` for `project`, and the carry `[B, T, F]`: the feature of the next token if it is drafted.
        """

    @abstractmethod
    def project(self, states: torch.Tensor, stage: int = 0) -> torch.Tensor:
        """Return logits `[R, V']` for states `[R, H]`."""

    def parts(self, stage: int = 0) -> HeadParts | None:
        """Return the parts of a stage, or None if it does not have the structure of `HeadParts`."""
        return None
