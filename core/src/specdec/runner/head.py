"""What a draft head is: a small module that reads the target's states beside the tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import nn
from transformers import PretrainedConfig


@dataclass(frozen=True)
class HeadParts:
    """The parts of a stage whose layers have the Llama structure, so that it can run compiled.

    `x = join([e; f])` with the embedding e and the feature f, each normed where there is a norm for it; then the layers.
    Without `join` the first layer's projections take `[e; f]` themselves, and f is the residual stream.
    """

    embed_tokens: nn.Module
    layers: nn.ModuleList
    rotary: nn.Module
    head: nn.Module
    norm: nn.Module | None
    """Before `head`; None for none."""
    first_norm: nn.Module | None
    """Norm of the first layer's input; None where it is taken as it is, or is `[e; f]`."""
    join: nn.Linear | None = None
    embed_norm: nn.Module | None = None
    feature_norm: nn.Module | None = None
    is_feature_first: bool = False
    is_normed_residual: bool = False
    is_normed_carry: bool = False
    """Whether the feature of the next token is the output of `norm`, not its input."""


@dataclass(slots=True)
class HeadOutput:
    """What a pass of a head returns."""

    logits: torch.Tensor
    """`[R, V']`."""
    carry: torch.Tensor
    """`[T, F]` the feature of the token that comes next, if it is drafted."""


class DraftHead(nn.Module, ABC):
    """A head: for each token and the state that chose it, the logits of the next token and a state in its place.

    Drafting on the level of features (Li et al., arXiv 2401.15077) and prediction of several tokens (DeepSeek-AI, arXiv
    2412.19437) have heads of this kind.
    Attention layers are those of `transformers`, made with `config`, their `layer_idx` counted through all stages from 0.
    """

    target_ids: torch.Tensor | None = None
    """`[V']` the target's id of each logit, where they are not the same."""
    mask_id: int | None = None
    """The token that stands for tokens not known yet, for heads that draft in parallel."""
    mask_feature: torch.Tensor | None = None
    """`[F]` the feature that goes with it."""

    def __init__(
        self, config: PretrainedConfig, feature_size: int, num_logits: int, num_stages: int = 1
    ) -> None:
        """Keep what runners need to know.

        Args:
            config: the attention layers' configuration.
            feature_size: F, the width of features.
            num_logits: V', ids the head can name.
            num_stages: modules that follow one another: stage s drafts the token s positions further, from the carry of
                stage s - 1.
        """
        super().__init__()
        self.config = config
        self.feature_size = feature_size
        self.num_logits = num_logits
        self.num_stages = num_stages

    def combine(
        self, hidden_states: torch.Tensor, aux_hidden_states: tuple[torch.Tensor, ...]
    ) -> torch.Tensor:
        """Return the features `[T, F]` made of the target's states, each `[T, Ht]`; by default the last states."""
        return hidden_states

    @abstractmethod
    def forward(
        self, input_ids: torch.Tensor, position_ids: torch.Tensor, features: torch.Tensor, stage: int = 0
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run a stage.

        Args:
            input_ids: `[B, T]` tokens.
            position_ids: `[B, T]`.
            features: `[B, T, F]` for each token the state that chose it: of the target (`combine`), or of this head (carry).
            stage: which stage.

        Returns:
            states `[B, T, H]` that `project` takes, and the carry `[B, T, F]`, the feature of the next token if it is drafted.
        """

    @abstractmethod
    def project(self, states: torch.Tensor, stage: int = 0) -> torch.Tensor:
        """Return logits `[R, V']` for states `[R, H]`."""

    def parts(self, stage: int = 0) -> HeadParts | None:
        """Return the parts of a stage, or None if it has no such structure; see `HeadParts`."""
        return None
