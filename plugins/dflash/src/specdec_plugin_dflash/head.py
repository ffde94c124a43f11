"""The head as a torch module, for drafting on core's cache and for training."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from specdec_plugin_dflash.convolution import GroupedConvolution, convolved
from specdec_plugin_dflash.settings import DFlashSettings
from specdec_plugin_dflash.stages import make_stage

if TYPE_CHECKING:
    from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention, Qwen3DecoderLayer

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""Attention of one layer: its index, and queries `[T, H, D]`, keys and values `[T, Hkv, D]` of the block's rows; returns
`[T, H, D]`."""


class DFlashHead(nn.Module):
    """DFlash (arXiv 2602.06036): a block-diffusion model of Qwen3 layers that fills all masks of a block in one pass.

    The block is the last committed token and mask tokens, embedded by the target. Its rows see each other, and of the text
    before them keys and values that every layer projects from one fused state of the target. Its relatives add convolutions
    over the block, or a stage that corrects guesses by the tokens before them.

    Args:
        settings: settings of the head.
        embed_tokens: the target's embedding, or the head's own.
        lm_head: the target's output projection; None for one of the head's own.
    """

    target_ids: Tensor | None = None
    """`[V']` the target's id of each logit; None if they are the same."""

    def __init__(
        self, settings: DFlashSettings, embed_tokens: nn.Module, lm_head: nn.Module | None = None
    ) -> None:
        from transformers import Qwen3ForCausalLM  # takes a second: not before there is a head
        from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

        super().__init__()
        self.settings = settings
        config = copy.deepcopy(settings.layer_config)
        config.vocab_size, config.pad_token_id, config.tie_word_embeddings = 1, None, False
        size = config.hidden_size
        self.model = Qwen3ForCausalLM(config)
        """The block's part: a causal language model as it stands, but for the mask of its attention."""
        self.model.set_input_embeddings(embed_tokens)
        self.model.lm_head = nn.Linear(size, settings.num_logits, bias=False) if lm_head is None else lm_head
        self.model.config.vocab_size = settings.layer_config.vocab_size
        self.fc = nn.Linear(len(settings.aux_layers) * settings.target_hidden_size, size, bias=False)
        self.hidden_norm = Qwen3RMSNorm(size, eps=config.rms_norm_eps)
        sizes, count = settings.convolution, config.num_hidden_layers if settings.convolution else 0
        self.convolutions = nn.ModuleList(
            nn.ModuleDict({part: GroupedConvolution(size, sizes) for part in ("attention", "mlp")})
            for _ in range(count)
            if sizes is not None
        )
        self.stage = make_stage(settings, self.embed)

    @property
    def layers(self) -> list[Qwen3DecoderLayer]:
        """The decoder layers."""
        return list(self.model.model.layers)

    def fuse(self, states: tuple[Tensor, ...]) -> Tensor:
        """Return the context `[..., H]` that all layers read, from the target's states, each `[..., Ht]`."""
        joined = torch.cat(states, -1).to(self.fc.weight.dtype)
        fused: Tensor = self.hidden_norm(self.fc(joined))
        return fused

    def projection(self) -> tuple[Tensor, Tensor | None]:
        """Return the weight `[L * 2 * Hkv * D, H]` and bias of all layers' keys and values, layer after layer."""
        parts = [part for layer in self.layers for part in (layer.self_attn.k_proj, layer.self_attn.v_proj)]
        weights: list[Tensor] = [part.weight for part in parts]
        if not self.settings.layer_config.attention_bias:
            return torch.cat(weights), None
        biases: list[Tensor] = [part.bias for part in parts]
        return torch.cat(weights), torch.cat(biases)

    def context(self, fused: Tensor, positions: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return keys and values `[..., T, Hkv, D]` of every layer for contexts `[..., T, H]` at positions `[T]`."""
        return self.split_context(F.linear(fused, *self.projection()), positions)

    def split_context(self, projected: Tensor, positions: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return keys and values of every layer from what `projection` gave; see `context`."""
        attentions = [layer.self_attn for layer in self.layers]
        cos, sin = self.rotary(projected, positions)
        heads = projected.unflatten(-1, (len(attentions), 2, -1, attentions[0].head_dim))
        return [
            (rotated(attention.k_norm(heads[..., index, 0, :, :]), cos, sin), heads[..., index, 1, :, :])
            for index, attention in enumerate(attentions)
        ]

    def rotary(self, like: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return rotary factors `[T, 1, D]` for positions `[T]`, in the dtype of `like`."""
        cos, sin = self.model.model.rotary_emb(like, position_ids=positions[None])
        return cos[0, :, None], sin[0, :, None]

    def run(self, x: Tensor, positions: Tensor, attend: Attend, places: Tensor | None = None) -> Tensor:
        """Return the final states `[T, H]` of blocks.

        Args:
            x: `[T, H]` embedded rows, block after block.
            positions: `[T]` positions in the text.
            attend: attention.
            places: `[T]` places in their blocks; needed by convolutions alone.
        """
        cos, sin = self.rotary(x, positions)
        for index, layer in enumerate(self.layers):

            def attended(
                y: Tensor, index: int = index, attention: Qwen3Attention = layer.self_attn
            ) -> Tensor:
                return self._attended(attention, y, cos, sin, index, attend)

            x = x + self._convolved("attention", index, layer.input_layernorm(x), attended, places)
            x = x + self._convolved("mlp", index, layer.post_attention_layernorm(x), layer.mlp, places)
        states: Tensor = self.model.model.norm(x)
        return states

    def embed(self, ids: Tensor) -> Tensor:
        """Return the embeddings `[..., H]` of ids, in the head's dtype."""
        embedded: Tensor = self.model.get_input_embeddings()(ids)
        return embedded.to(self.fc.weight.dtype)

    def _convolved(
        self, part: str, index: int, x: Tensor, run: Callable[[Tensor], Tensor], places: Tensor | None
    ) -> Tensor:
        """Run a part of a layer, between its convolutions if it has any."""
        if not len(self.convolutions):
            return run(x)
        assert places is not None
        kernels: GroupedConvolution = self.convolutions[index][part]  # type: ignore[index]  # of `nn.ModuleDict`s
        before, behind = kernels.kernels(x)
        return convolved(run(convolved(x, before, places)), behind, places)

    def project(self, states: Tensor) -> Tensor:
        """Return logits `[..., V']` of final states."""
        return self.finish(self.model.lm_head(states))

    def finish(self, logits: Tensor) -> Tensor:
        """Apply the head's scale and soft cap to what its output projection gave."""
        scale, cap = self.settings.logit_scale, self.settings.logit_softcap
        logits = logits if scale == 1.0 else logits * scale
        return logits if cap is None else cap * torch.tanh(logits / cap)

    def _attended(
        self, attention: Qwen3Attention, x: Tensor, cos: Tensor, sin: Tensor, index: int, attend: Attend
    ) -> Tensor:
        query, key, value = (
            part(x).unflatten(-1, (-1, attention.head_dim))
            for part in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        query, key = (
            rotated(attention.q_norm(query), cos, sin),
            rotated(attention.k_norm(key), cos, sin),
        )
        out: Tensor = attention.o_proj(attend(index, query, key, value).flatten(-2))
        return out


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate `x [..., T, heads, D]` by factors `[T, 1, D]`."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin
