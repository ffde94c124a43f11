"""Initialises attention of EAGLE-3 heads to read the token at its own position."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedModel

from specdec_plugin_eagle import Eagle3Head
from specdec_runtime.models import input_embedding
from specdec_train.heads.weights import weight_of

_OWN_SCORE = 10.0
"""Attention score of the own position, in nats above the mean."""
_OWN_SHARE = 0.3
"""Size of the attention output relative to the residual stream, if it showed all of the embedding."""


def read_own_token(head: Eagle3Head, target: PreTrainedModel) -> None:
    """Make the first attention heads read their own position and add its rotated embedding to the residual.

    The token enters an EAGLE-3 head only through attention. Equal query and key projections of the embedding
    give the own position the highest score, so training does not have to learn that. One of several key heads
    is used for it.
    """
    layer = head.body.layers[0]
    attention, config = layer.self_attn, head.body.config
    assert isinstance(attention, nn.Module)
    num_key_heads: int = config.num_key_value_heads
    if num_key_heads < 2:
        return
    size, width = config.hidden_size, attention.head_dim
    num_queries = config.num_attention_heads // num_key_heads
    assert isinstance(width, int)
    if width > size:
        return
    with torch.no_grad():
        norm = weight_of(layer.input_layernorm)
        embedded = F.rms_norm(weight_of(input_embedding(target)).to(norm), (size,)) * norm
        seen = nn.init.orthogonal_(norm.new_empty(width, size))
        seen *= (_OWN_SCORE * width**0.5 / (embedded @ seen.T).square().sum(-1).mean()).sqrt()
        shown = nn.init.orthogonal_(norm.new_empty(width, size))
        for name, rows, part in (
            ("q_proj", num_queries * width, seen.repeat(num_queries, 1)),
            ("k_proj", width, seen),
            ("v_proj", width, shown),
        ):
            projection = attention.get_submodule(name)
            assert isinstance(projection, nn.Linear)
            projection.weight[:rows] = F.pad(part, (0, size))
            if projection.bias is not None:
                projection.bias[:rows] = 0
        turned = nn.init.orthogonal_(norm.new_empty(size, width)).repeat(1, num_queries)
        scale = (
            _OWN_SHARE * weight_of(head.hidden_norm).square().mean().sqrt() / embedded.square().mean().sqrt()
        )
        weight_of(attention.get_submodule("o_proj"))[:, : num_queries * width] = turned * scale / num_queries
