"""The heads as torch modules, for drafting on core's cache and for training."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from transformers import AutoModel

from specdec_plugin_eagle.settings import EagleSettings
from specdec_runtime.interfaces import DraftHead, HeadParts


class _Body(nn.Module):
    """Decoder layers of the configured family, without an embedding."""

    def __init__(self, settings: EagleSettings) -> None:
        super().__init__()
        config = copy.deepcopy(settings.layer_config)
        config.vocab_size = 1
        config.tie_word_embeddings = False
        config.pad_token_id = None
        base = AutoModel.from_config(config)
        self.layers: nn.ModuleList = base.layers
        kinds = getattr(base.config, "layer_types", None) if config.model_type == "llama" else None
        self.windows = [base.config.sliding_window if k == "sliding_attention" else None for k in kinds or ()]
        """Sliding windows of Llama's layers, which do not read them themselves."""
        self.rotary: nn.Module = base.rotary_emb
        self.norm_class: type[nn.Module] = type(base.norm)
        self.epsilon = float(config.rms_norm_eps)
        self.config = base.config

    def make_norm(self, size: int) -> nn.Module:
        """Return a norm of the family."""
        return self.norm_class(size, eps=self.epsilon)

    def run(
        self, x: torch.Tensor, entry: torch.Tensor, position_ids: torch.Tensor, **attention: Any
    ) -> torch.Tensor:
        """Run the layers on the residual stream `x [B, T, H]`; the first layer's attention reads `entry [B, T, W]`."""
        position_embeddings = self.rotary(x, position_ids=position_ids)
        attention = {"attention_mask": None, **attention}
        for index, layer in enumerate(self.layers):
            inputs = entry if index == 0 else layer.input_layernorm(x)  # type: ignore[operator]  # a module
            if self.windows:
                attention["sliding_window"] = self.windows[index]
            attended = layer.self_attn(  # type: ignore[operator]  # ditto
                hidden_states=inputs, position_embeddings=position_embeddings, **attention
            )[0]
            x = x + attended
            x = x + layer.mlp(layer.post_attention_layernorm(x))  # type: ignore[operator]  # ditto
        return x


class EagleHead(DraftHead):
    """EAGLE-1 and EAGLE-2 (arXiv 2401.15077, 2406.16858): `fc([embedding; state])`, then decoder layers, the first one without
    an input norm. The output is the next state; the target's output projection computes logits from it.

    Args:
        settings: settings of the head.
        embed_tokens: the target's embedding, or the head's own.
        lm_head: the target's output projection, or the head's own.
        has_fc_bias: whether `fc` has a bias, as in heads for Llama 2.
    """

    def __init__(
        self, settings: EagleSettings, embed_tokens: nn.Module, lm_head: nn.Module, *, has_fc_bias: bool
    ) -> None:
        body = _Body(settings)
        super().__init__(body.config, settings.target_hidden_size, settings.num_logits)
        self.settings = settings
        size = settings.layer_config.hidden_size
        self.body = body
        del self.body.layers[0].input_layernorm
        self.fc = nn.Linear(size + settings.target_hidden_size, size, bias=has_fc_bias)
        self.embedding_layernorm = body.make_norm(size) if settings.has_para_norms else None
        self.hidden_states_layernorm = body.make_norm(size) if settings.has_para_norms else None
        self.embed_tokens, self.lm_head = embed_tokens, lm_head

    def forward(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        features: torch.Tensor,
        stage: int = 0,
        **attention: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits and features of a pass; further arguments go to the layers' attention."""
        embedded = self.embed_tokens(input_ids).to(features.dtype)
        if self.embedding_layernorm is not None and self.hidden_states_layernorm is not None:
            embedded, features = self.embedding_layernorm(embedded), self.hidden_states_layernorm(features)
        x = self.fc(torch.cat((embedded, features), -1))
        x = self.body.run(x, x, position_ids, **attention)
        return x, x

    def project(self, states: torch.Tensor, stage: int = 0) -> torch.Tensor:
        """Return logits `[R, V]`."""
        return _scaled(self.lm_head(states), self.settings.logit_scale)

    def parts(self, stage: int = 0) -> HeadParts | None:
        """Return the modules of a stage, for backends; None if it is built otherwise."""
        if self.settings.logit_scale != 1.0:
            return None
        return HeadParts(
            embed_tokens=self.embed_tokens,
            layers=self.body.layers,
            rotary=self.body.rotary,
            head=self.lm_head,
            norm=None,
            first_norm=None,
            join=self.fc,
            embed_norm=self.embedding_layernorm,
            feature_norm=self.hidden_states_layernorm,
        )


class Eagle3Head(DraftHead):
    """EAGLE-3 (arXiv 2503.01840): hidden states of several target layers are fused into one. The first layer's attention
    reads `[norm(embedding); norm(state)]`, the residual stream begins with the state, and the output before the final norm is
    the next state.

    Args:
        settings: settings of the head.
        embed_tokens: the target's embedding, or the head's own.
        has_mask_feature: whether the head has a learned feature for mask tokens.
    """

    def __init__(
        self, settings: EagleSettings, embed_tokens: nn.Module, *, has_mask_feature: bool = False
    ) -> None:
        body = _Body(settings)
        size, wide = settings.layer_config.hidden_size, settings.target_hidden_size
        super().__init__(body.config, size, settings.num_logits)
        self.settings = settings
        self.body = body
        first = body.layers[0]
        for name in ("q_proj", "k_proj", "v_proj"):
            old = getattr(first.self_attn, name)
            setattr(first.self_attn, name, nn.Linear(2 * size, old.out_features, bias=old.bias is not None))
        self.hidden_norm = body.make_norm(size)
        num_states = settings.num_states
        self.fc = (
            nn.Linear(num_states * wide, size, bias=False) if settings.uses_aux or wide != size else None
        )
        self.fc_input_norm = body.make_norm(num_states * wide) if settings.has_norm_before_fc else None
        self.fc_norms = (
            nn.ModuleList(body.make_norm(wide) for _ in range(num_states)) if settings.has_fc_norms else None
        )
        self.norm = body.make_norm(size)
        self.lm_head = nn.Linear(size, settings.num_logits, bias=False)
        self.mask_hidden = nn.Parameter(torch.zeros(1, num_states * wide)) if has_mask_feature else None
        self.embed_tokens = embed_tokens

    def combine(
        self, hidden_states: torch.Tensor, aux_hidden_states: tuple[torch.Tensor, ...]
    ) -> torch.Tensor:
        """Return the fused state `[T, H]`."""
        return self.fuse(aux_hidden_states if self.settings.uses_aux else (hidden_states,))

    def fuse(self, states: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """Fuse the states `[..., Ht]` that the head reads into one state `[..., H]`."""
        joined = self.joined(states)
        return joined if self.fc is None else self.fc(joined)

    def joined(self, states: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """Return the input `[..., n Ht]` of `fc`: the states that the head reads, normed as configured."""
        dtype = self.norm.weight.dtype
        assert isinstance(dtype, torch.dtype)
        states = tuple(state.to(dtype) for state in states)
        if self.fc_norms is not None:
            states = tuple(norm(state) for norm, state in zip(self.fc_norms, states, strict=True))
        joined = torch.cat(states, -1)
        return joined if self.fc_input_norm is None else self.fc_input_norm(joined)

    def forward(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        features: torch.Tensor,
        stage: int = 0,
        **attention: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits and features of a pass; further arguments go to the layers' attention."""
        embedded = self.body.layers[0].input_layernorm(self.embed_tokens(input_ids).to(features.dtype))  # type: ignore[operator]  # a module
        normed = self.hidden_norm(features)
        x = normed if self.settings.is_normed_residual else features
        x = self.body.run(x, torch.cat((embedded, normed), -1), position_ids, **attention)
        states = self.norm(x)
        return states, states if self.settings.is_normed_carry else x

    def project(self, states: torch.Tensor, stage: int = 0) -> torch.Tensor:
        """Return logits `[R, V']`."""
        return _scaled(self.lm_head(states), self.settings.logit_scale)

    def parts(self, stage: int = 0) -> HeadParts | None:
        """Return the modules of a stage, for backends; None if it is built otherwise."""
        if self.settings.logit_scale != 1.0:
            return None
        return HeadParts(
            embed_tokens=self.embed_tokens,
            layers=self.body.layers,
            rotary=self.body.rotary,
            head=self.lm_head,
            norm=self.norm,
            first_norm=None,
            embed_norm=self.body.layers[0].input_layernorm,  # type: ignore[arg-type]  # a module
            feature_norm=self.hidden_norm,
            is_normed_residual=self.settings.is_normed_residual,
            is_normed_carry=self.settings.is_normed_carry,
        )


def _scaled(logits: torch.Tensor, scale: float) -> torch.Tensor:
    return logits if scale == 1.0 else logits * scale
