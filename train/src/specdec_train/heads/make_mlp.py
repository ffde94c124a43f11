"""Initialises an MLP speculator."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from specdec_plugin_mlp import MLPSpeculator, MLPSpeculatorLayout
from specdec_runtime.models import input_embedding, output_head
from specdec_train.heads.factored import factor
from specdec_train.heads.recipe import HeadRecipe
from specdec_train.heads.weights import weight_of

_SHARE = 0.5**0.5
"""Factor on two summands of equal size that keeps the size of their sum."""


def make_mlp(target: PreTrainedModel, recipe: HeadRecipe) -> MLPSpeculator:
    """Return an MLP speculator for a target, initialised from the target's own vocabulary weights.

    If the heads are twice as wide as the target, they start as linear maps: GELU(x) - GELU(-x) = x, so a
    state next to its negative passes through unchanged. Their embeddings and output projections are then
    trained as maps of the target's own tables; `merge` turns them into plain tables. If the heads are as wide
    as the target, they start with its output projection only.
    """
    size = target.config.get_text_config().hidden_size
    projection = weight_of(output_head(target)).float().cpu()  # heads are created on the CPU
    layout = MLPSpeculatorLayout(
        vocab_size=projection.shape[0],
        emb_dim=size,
        inner_dim=recipe.inner_size,
        n_predict=recipe.num_steps,
        tie_weights=recipe.is_tied,
        scale_input=True,
    )
    heads = MLPSpeculator(layout)
    with torch.no_grad():
        if layout.width == size:
            for head in heads.head:
                weight_of(head).copy_(projection)
        elif layout.width == 2 * size:
            normed = F.rms_norm(weight_of(input_embedding(target)).float().cpu(), (size,))
            turned = nn.init.orthogonal_(torch.empty(size, size))
            through = torch.eye(size)
            for index in range(layout.n_predict):
                factor(heads.emb[index], normed, _mirrored(turned), _SHARE / heads.token_weight)
                factor(heads.head[index], projection, _mirrored(through), 0.5)
                joined = weight_of(heads.proj[index])
                if index:
                    half = _SHARE * _mirrored(through)
                    joined.copy_(torch.cat((half, -half)))
                else:
                    joined.copy_(_mirrored(through).T)
    return heads


def _mirrored(half: Tensor) -> Tensor:
    """Return `[n, 2 m]`: `half [n, m]` and its negative."""
    return torch.cat((half, -half), 1)
