"""The head: joins a token with the state that chose it, and looks back over the text with one layer."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

from specdec_runtime.interfaces import DraftHead, HeadParts


class GlanceHead(DraftHead):
    """Predicts the target's state after each token, from which the target's own output projection gets the next one.

    Args:
        config: the target's configuration.
        embed_tokens: the target's embedding.
        lm_head: the target's output projection.
    """

    def __init__(self, config: LlamaConfig, embed_tokens: nn.Module, lm_head: nn.Module) -> None:
        config = deepcopy(config)
        config.num_hidden_layers = 1
        size = config.hidden_size
        super().__init__(config, feature_size=size, num_logits=config.vocab_size)
        self.join = nn.Linear(2 * size, size, bias=False)
        self.layer = LlamaDecoderLayer(config, layer_idx=0)
        self.rotary = LlamaRotaryEmbedding(config)
        self.embed_tokens, self.lm_head = embed_tokens, lm_head

    def own_weights(self) -> dict[str, torch.Tensor]:
        """Return the weights that are not the target's, by name."""
        theirs = ("embed_tokens.", "lm_head.")
        return {name: w for name, w in self.state_dict().items() if not name.startswith(theirs)}

    def forward(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        features: torch.Tensor,
        stage: int = 0,
        **attention: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the predicted states `[B, T, H]`, twice: for `project`, and as the features of drafted tokens."""
        x = self.join(torch.cat((self.embed_tokens(input_ids).to(features.dtype), features), -1))
        states = self.layer(
            x,
            position_embeddings=self.rotary(x, position_ids=position_ids),
            position_ids=position_ids,
            **{"attention_mask": None, **attention},
        )
        return states, states

    def project(self, states: torch.Tensor, stage: int = 0) -> torch.Tensor:
        """Return logits `[R, V]`."""
        logits: torch.Tensor = self.lm_head(states)
        return logits

    def parts(self, stage: int = 0) -> HeadParts:
        """Name the parts of the Llama structure: with them the head runs compiled on the CPU."""
        return HeadParts(
            embed_tokens=self.embed_tokens,
            layers=nn.ModuleList([self.layer]),
            rotary=self.rotary,
            head=self.lm_head,
            norm=None,
            first_norm=self.layer.input_layernorm,
            join=self.join,
        )
