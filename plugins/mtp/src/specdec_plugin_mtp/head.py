"""Multi-token-prediction layers as a draft head, for drafting on core's cache and for training."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import PretrainedConfig

from specdec_plugin_mtp.family import Family
from specdec_plugin_mtp.layouts import DEEPSEEK, Layout
from specdec_runtime.interfaces import DraftHead, HeadParts


class MtpStage(nn.Module):
    """One layer with its input and output modules.

    Args:
        family: creates its modules.
        index: index of the layer.
        embed_tokens: the target's embedding, or the layer's own.
        lm_head: the target's output projection, or the layer's own.
        has_join_bias: whether `join` has a bias.
    """

    def __init__(
        self, family: Family, index: int, embed_tokens: nn.Module, lm_head: nn.Module, *, has_join_bias: bool
    ) -> None:
        super().__init__()
        size = family.config.hidden_size
        self.embed_norm, self.feature_norm = family.make_norm(), family.make_norm()
        self.join = nn.Linear(2 * size, size, bias=has_join_bias)
        self.layers = nn.ModuleList([family.layers[index]])
        self.norm = family.make_norm()
        self.embed_tokens, self.lm_head = embed_tokens, lm_head


class MtpHead(DraftHead):
    """The layers of one target. Each joins a token with the state that chose it and ends in a norm. The norm's output is the
    input of the output projection and, except in layouts with `carries_unnormed`, the state of the next step.

    As in DeepSeek-V3 (arXiv 2412.19437) layer s takes the states of layer s - 1, and the first layer the target's states.
    With more steps than layers the first layer follows the last one.

    Args:
        config: the target's configuration.
        embed_tokens: its embedding.
        lm_head: its output projection.
        num_logits: number of logits of `lm_head`.
        layout: tensor names, and the order in which token and state are joined.
        num_layers: number of layers.
        is_sparse: whether they are MoE layers, in families that have them.
        has_join_bias: whether `join` has a bias.

    Raises:
        ModelError: if `transformers` has no such layers.
    """

    def __init__(
        self,
        config: PretrainedConfig,
        embed_tokens: nn.Module,
        lm_head: nn.Module,
        num_logits: int,
        *,
        layout: Layout = DEEPSEEK,
        num_layers: int = 1,
        is_sparse: bool = False,
        has_join_bias: bool = False,
    ) -> None:
        family = Family(config, layout, num_layers, is_sparse=is_sparse)
        super().__init__(family.config, family.config.hidden_size, num_logits, num_layers)
        family.config.vocab_size = num_logits
        self.layout = layout
        self.rotary = family.rotary
        self.stages = nn.ModuleList(
            MtpStage(family, index, embed_tokens, lm_head, has_join_bias=has_join_bias)
            for index in range(num_layers)
        )
        for stage in self.stages[1:]:
            for part in ("join", "embed_norm", "feature_norm", "norm"):
                if layout.is_shared(part):
                    setattr(stage, part, getattr(self.stages[0], part))

    def combine(
        self, hidden_states: torch.Tensor, aux_hidden_states: tuple[torch.Tensor, ...]
    ) -> torch.Tensor:
        """Return the target's states `[T, H]`, before or after its final norm."""
        return aux_hidden_states[0] if self.layout.reads_unnormed else hidden_states

    def stage(self, index: int) -> MtpStage:
        """Return one of the layers."""
        stage = self.stages[index]
        assert isinstance(stage, MtpStage)
        return stage

    def forward(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        features: torch.Tensor,
        stage: int = 0,
        **attention: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits and features of a stage; further arguments, such as `past_key_values`, go to the layer."""
        parts = self.stage(stage)
        embedded = parts.embed_norm(parts.embed_tokens(input_ids).to(features.dtype))
        state = parts.feature_norm(features)
        first, second = (state, embedded) if self.layout.is_feature_first else (embedded, state)
        x = parts.join(torch.cat((first, second), -1))
        x = parts.layers[0](
            x,
            position_embeddings=self.rotary(x, position_ids=position_ids),
            position_ids=position_ids,
            **{"attention_mask": None, **attention},
        )
        states = parts.norm(x)
        return states, x if self.layout.carries_unnormed else states

    def project(self, states: torch.Tensor, stage: int = 0) -> torch.Tensor:
        """Return logits `[R, V]`."""
        logits: torch.Tensor = self.stage(stage).lm_head(states)
        return logits

    def parts(self, stage: int = 0) -> HeadParts | None:
        """Return the modules of a stage, for backends; None if it is built otherwise."""
        if not self.layout.has_llama_rotary:
            return None
        parts = self.stage(stage)
        first_norm = getattr(parts.layers[0], "input_layernorm", None)
        if first_norm is None:
            return None
        return HeadParts(
            embed_tokens=parts.embed_tokens,
            layers=parts.layers,
            rotary=self.rotary,
            head=parts.lm_head,
            norm=parts.norm,
            first_norm=first_norm,
            join=parts.join,
            embed_norm=parts.embed_norm,
            feature_norm=parts.feature_norm,
            is_feature_first=self.layout.is_feature_first,
            is_normed_carry=not self.layout.carries_unnormed,
        )
